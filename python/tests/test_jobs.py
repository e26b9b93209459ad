"""headlane-embed and headlane-translate without MPI: results, lines, options."""

import io
import os
import re
import sys

import numpy as np
import pytest
from headlane.jobs import _options, _progress
from job_runs import (
    INTERRUPT,
    LITTLE,
    TERM,
    command,
    held,
    interrupted,
    models,
    run_here,
    start,
    succeed,
    words,
    write_encoder,
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_encoder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def encoder(model):
    return models.SentenceEncoder(model)


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def embed(model, text, out, *options):
    return run_here("embed", model, text, out, *options)


@pytest.mark.parametrize(
    "options", [[], ["--piece-lines", 1], ["--piece-lines", 7, "--threads", 2, "--batch-size", 3]]
)
def test_rows_are_those_of_encode(model, encoder, tmp_path, capsys, options):
    lines = words(100)
    (tmp_path / "text").write_text("\n".join(lines) + "\n")
    assert embed(model, tmp_path / "text", tmp_path / "out.npy", *options) == 0
    assert (tmp_path / "out.npy").read_bytes() == npy(encoder.encode(lines))
    assert sorted(os.listdir(tmp_path)) == ["out.npy", "out.npy.job.json", "text"]
    error = capsys.readouterr().err
    assert error.startswith(f"headlane-embed: 100 lines in {tmp_path}/out.npy; 100 of them now, in ")
    assert error.count("\n") == 1  # progress is not for files


def test_options_of_embeddings(model, encoder, tmp_path):
    lines = words(9)
    (tmp_path / "text").write_text("\n".join(lines))
    given = [*"--pooling max --normalize --weights int8 --activations int8 --prompt".split(), "ab c"]
    assert embed(model, tmp_path / "text", tmp_path / "out.npy", *given) == 0
    other = models.SentenceEncoder(model, weights="int8", activations="int8")
    wanted = other.encode(lines, pooling="max", normalize=True, prompt="ab c")
    assert (tmp_path / "out.npy").read_bytes() == npy(wanted)


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"\n\na", ["", "", "a"]),
        (b"a b\r\nc\r\n\r\nd", ["a b", "c", "", "d"]),
        (b"a\rb\nc\x0bd\x0ce\n", ["a\rb", "c\x0bd\x0ce"]),
        ("é\u2028ß\nz\x85z".encode(), ["é\u2028ß", "z\x85z"]),
    ],
)
def test_ends_of_lines(model, encoder, tmp_path, data, lines):
    (tmp_path / "text").write_bytes(data)
    assert embed(model, tmp_path / "text", tmp_path / "out.npy") == 0
    wanted = encoder.encode(lines) if lines else np.empty((0, 32), np.float32)
    assert (tmp_path / "out.npy").read_bytes() == npy(wanted)


def test_a_line_at_the_limit(model, encoder, tmp_path, capsys):
    """The ends of lines are not counted, and lines of many chunks are read once."""
    lines = ["a" * 10, "b" * 300_001, "c" * 300_000, "d", "e" * 700_000]
    (tmp_path / "text").write_bytes("\r\n".join(lines).encode())
    given = ["--max-line-bytes", 300_000, "--bad-lines", "skip", "--bad-lines-file", tmp_path / "bad"]
    assert embed(model, tmp_path / "text", tmp_path / "out.npy", *given) == 0
    rows = np.load(tmp_path / "out.npy")
    assert rows[[0, 2, 3]].tobytes() == encoder.encode([lines[0], lines[2], lines[3]]).tobytes()
    assert not rows[[1, 4]].any()
    bad = (tmp_path / "bad").read_text()
    assert re.fullmatch(
        r"2\t30000[12] bytes, more than --max-line-bytes 300000\n5\t700000 bytes, more than .*\n", bad
    )


BAD = b"one\n\xff\xfe\nthree\nfo\0ur\nfive\nsi\xc3\n" + b"7" * 30 + b"\neight"
REASONS = [
    "2\tnot UTF-8: invalid start byte, at byte 1",
    "4\ta NUL, at byte 3",
    "6\tnot UTF-8: unexpected end of data, at byte 3",
    "7\t30 bytes, more than --max-line-bytes 20",
]


def test_bad_lines_stop_the_job_before_it_begins(model, tmp_path, capsys):
    (tmp_path / "text").write_bytes(BAD)
    given = ["--max-line-bytes", 20, "--bad-lines-file", tmp_path / "bad", "--piece-lines", 2]
    assert embed(model, tmp_path / "text", tmp_path / "out.npy", *given) == 1
    error = capsys.readouterr().err.splitlines()
    wanted = [f"headlane-embed: {tmp_path}/text, line {line}".replace("\t", ": ") for line in REASONS]
    assert error == [
        *wanted,
        "headlane-embed: 4 bad lines; --bad-lines skip puts rows of zeros in their place",
    ]
    assert (tmp_path / "bad").read_text().splitlines() == REASONS
    assert sorted(os.listdir(tmp_path)) == ["bad", "text"]


def test_bad_lines_skipped(model, encoder, tmp_path, capsys):
    (tmp_path / "text").write_bytes(BAD)
    given = ["--max-line-bytes", 20, "--bad-lines", "skip", "--piece-lines", 2]
    assert embed(model, tmp_path / "text", tmp_path / "out.npy", *given) == 0
    rows = np.load(tmp_path / "out.npy")
    assert rows[[0, 2, 4, 7]].tobytes() == encoder.encode(["one", "three", "five", "eight"]).tobytes()
    assert rows[[1, 3, 5, 6]].tobytes() == bytes(4 * 32 * 4)
    assert capsys.readouterr().err.endswith("; 4 bad lines are rows of zeros\n")


def test_many_bad_lines_are_few_messages(model, tmp_path, capsys):
    (tmp_path / "text").write_bytes(b"\0\n" * 1000)
    assert embed(model, tmp_path / "text", tmp_path / "out.npy") == 1
    error = capsys.readouterr().err.splitlines()
    assert len(error) == 7
    assert error[4].endswith("line 5: a NUL, at byte 1")
    assert error[5] == "headlane-embed: and 995 more bad lines"


def test_lines_without_tokens(tmp_path, capsys):
    model = write_encoder(tmp_path / "model", specials=False)
    (tmp_path / "text").write_text("ab\n\n  \ncd\n")
    assert embed(model, tmp_path / "text", tmp_path / "out.npy") == 1
    assert "line 2: no tokens to embed" in capsys.readouterr().err
    assert embed(model, tmp_path / "text", tmp_path / "out.npy", "--bad-lines", "skip") == 0
    rows = np.load(tmp_path / "out.npy")
    assert rows[[0, 3]].tobytes() == models.SentenceEncoder(model).encode(["ab", "cd"]).tobytes()
    assert not rows[1:3].any()


def translate(text, out, *options):
    return run_here("translate", LITTLE, text, out, *options)


@pytest.fixture(scope="module")
def english():
    lines = (LITTLE / "heldout.tsv").read_text().splitlines()[:30]
    return [*(line.split("\t")[0] for line in lines), "", "   "]


def test_translations(english, tmp_path):
    (tmp_path / "text").write_text("\n".join(english) + "\n")
    wanted = models.Translator(LITTLE).translate(english, num_beams=2, max_new_tokens=9)
    given = ["--num-beams", 2, "--max-new-tokens", 9, "--piece-lines", 5]
    assert translate(tmp_path / "text", tmp_path / "out", *given) == 0
    assert (tmp_path / "out").read_text() == "".join(line + "\n" for line in wanted)
    assert sorted(os.listdir(tmp_path)) == ["out", "out.job.json", "text"]
    assert len(set(wanted)) > 20


def test_a_newline_in_a_translation_becomes_a_space(english, tmp_path, monkeypatch):
    (tmp_path / "text").write_bytes(b"one\ntw\0o\nthree\n")
    answers = {"one": "un\n\r\nune", "three": "trois\r"}
    monkeypatch.setattr(models.Translator, "translate", lambda self, texts, **_: [answers[t] for t in texts])
    assert translate(tmp_path / "text", tmp_path / "out", "--bad-lines", "skip") == 0
    assert (tmp_path / "out").read_bytes() == b"un une\n\ntrois \n"


def test_an_empty_corpus_has_no_translations(english, tmp_path):
    (tmp_path / "text").write_bytes(b"")
    assert translate(tmp_path / "text", tmp_path / "out") == 0
    assert (tmp_path / "out").read_bytes() == b""


@pytest.mark.parametrize(
    ("options", "message", "status"),
    [
        (["--weights", "int3"], "--weights: invalid choice: 'int3'", 2),
        (["--piece-lines", "0"], "--piece-lines: 0, the minimum is 1", 2),
        (["--pool", "mean"], "unrecognized arguments: --pool mean", 2),
        (["--prompt", "a", "--prompt-name", "b"], "both --prompt and --prompt-name", 2),
        (["--resume", "--overwrite"], "not allowed with", 2),
        (["--prompt-name", "b"], "prompt_name is 'b'", 1),
        (["--in", "nothing"], "No such file or directory: nothing", 1),
        (["--out", "no/folder/x"], "there is no folder ", 1),
        (["--out", "."], "--out is a folder", 1),
    ],
)
def test_wrong_options(model, tmp_path, capsys, options, message, status):
    (tmp_path / "text").write_text("a\n")
    assert embed(model, tmp_path / "text", tmp_path / "out.npy", *options) == status
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error
    assert os.listdir(tmp_path) == ["text"]


def test_options_that_ranks_may_have_for_themselves(monkeypatch):
    """srun --pty gives rank 0 a terminal, and not the others."""

    def common(terminal, *options):
        monkeypatch.setattr(_options.sys.stderr, "isatty", lambda: terminal)
        return _options.common(_options.parse("embed", ["model", "--in=a", "--out=b", *options]))

    assert common(False) == common(True) == common(True, "--threads=2", "--batch-size=3", "--mpi=on")
    for option in ("--prompt=a", "--bad-lines=skip", "--resume", "--piece-lines=9", "--bad-lines-file=c"):
        assert common(True, option) != common(False)


def test_no_model(tmp_path, capsys):
    (tmp_path / "text").write_text("a\n")
    assert embed(tmp_path, tmp_path / "text", tmp_path / "out.npy") == 1
    assert "config.json" in capsys.readouterr().err


def test_an_existing_output_is_kept_unless_told(model, encoder, tmp_path, capsys):
    (tmp_path / "text").write_text("a\n")
    (tmp_path / "out.npy").write_text("mine")
    for option in ([], ["--resume"]):
        assert embed(model, tmp_path / "text", tmp_path / "out.npy", *option) == 1
        assert "out.npy exists; --overwrite replaces it" in capsys.readouterr().err
        assert (tmp_path / "out.npy").read_text() == "mine"
    assert embed(model, tmp_path / "text", tmp_path / "out.npy", "--overwrite") == 0
    assert (tmp_path / "out.npy").read_bytes() == npy(encoder.encode(["a"]))


@pytest.mark.parametrize("kind", ["embed", "translate"])
def test_help(kind):
    run = succeed([sys.executable, "-m", "headlane.jobs", kind, "--help"])
    assert run.stdout.startswith(f"usage: headlane-{kind} ")
    assert "--bad-lines-file FILE" in run.stdout
    assert max(map(len, run.stdout.splitlines())) < 100


def test_progress_is_a_line_a_second(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr(_progress.time, "monotonic", lambda: now[0])
    from headlane.jobs._ranks import Ranks

    shown = _progress.Progress("headlane-embed", Ranks(), 1000, 200, True)
    for _ in range(40):
        now[0] += 0.125
        shown.add(10)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "headlane-embed: 280 of 1000 lines (28.0 %), 80.0 lines/s, 9.0 s left"
    assert len(lines) == 5
    assert [*map(_progress.duration, (4.56, 59.4, 200, 7400))] == ["4.6 s", "59 s", "3:20", "2:03:20"]


@pytest.mark.parametrize(("stop", "status"), [(TERM, 143), (INTERRUPT, 130)])
def test_signals_end_it_and_resume_completes(model, encoder, tmp_path, stop, status):
    lines = words(400)
    (tmp_path / "text").write_text("\n".join(lines))
    line = command("embed", model, tmp_path / "text", tmp_path / "out.npy", "--piece-lines", 4)
    code, error = interrupted(held(line, 50), tmp_path / "out.npy", 10, stop)
    name = "SIGTERM" if status == 143 else "SIGINT"
    assert code == status
    assert error == (
        f"headlane-embed: stopped by {name}. Finished pieces are kept: the same command with --resume goes on\n"
    )
    assert not (tmp_path / "out.npy").exists()
    run = succeed([*line, "--resume"])
    assert 40 <= int(re.search(r"(\d+) of 400 lines are finished already", run.stderr)[1]) <= 200
    assert "again" not in run.stderr
    assert (tmp_path / "out.npy").read_bytes() == npy(encoder.encode(lines))
    assert sorted(os.listdir(tmp_path)) == ["out.npy", "out.npy.job.json", "text"]


def test_mpi_is_not_imported(model, tmp_path):
    """Not alone; and where mpirun starts several, a missing mpi4py is an error."""
    (tmp_path / "text").write_text("a\n")
    (tmp_path / "mpi4py.py").write_text("raise ImportError('no mpi4py here')")
    line = command("embed", model, tmp_path / "text", tmp_path / "out.npy")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    succeed(line, PYTHONPATH=path)
    succeed([*line, "--overwrite"], PYTHONPATH=path, OMPI_COMM_WORLD_SIZE="1")
    succeed([*line, "--overwrite", "--mpi", "off"], PYTHONPATH=path, OMPI_COMM_WORLD_SIZE="2")
    for settings, options in (({"PMI_SIZE": "2"}, []), ({}, ["--mpi=on"])):
        run = start([*line, "--overwrite", *options], PYTHONPATH=path, **settings)
        assert run.returncode == 1
        assert "no mpi4py here: pip install 'headlane[mpi]'" in run.stderr
