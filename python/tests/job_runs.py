"""Jobs of headlane.jobs, started as users start them, and models and texts for them.

Tests that import this are skipped where something is missing that jobs need.
"""

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from mpi_runs import environment
from small_bert import write_bert

models = pytest.importorskip("headlane.models", reason="headlane was built without its models")
pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")
tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")

LITTLE = Path(__file__).parents[2] / "models/little/en-fr"
ENGLISH = [line.split("\t")[0] for line in (LITTLE / "heldout.tsv").read_text().splitlines()[:60]]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = "abcdefghijklmnopqrstuvwxyzéß"


def write_encoder(folder, specials=True, layers=2, d=32):
    """A small random BERT whose tokens are letters.

    specials: whether texts have tokens at their begin and end, so that an empty one has tokens.
    """
    folder.mkdir(exist_ok=True)
    pieces = [*SPECIAL, *LETTERS, *("##" + letter for letter in LETTERS)]
    write_bert(folder, layers, d, len(pieces))
    model = tokenizers.models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    if not specials:
        (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    return folder


def words(count, seed=0):
    """Lines of some words each."""
    random = np.random.default_rng(seed)
    letters = list(LETTERS)
    return [
        " ".join("".join(random.choice(letters, random.integers(1, 9))) for _ in range(random.integers(1, 9)))
        for _ in range(count)
    ]


def command(kind, model, text, out, *options):
    return [
        sys.executable, "-m", "headlane.jobs", kind, str(model), "--in", str(text), "--out", str(out),
        *map(str, options),
    ]  # fmt: skip


def slow(line, seconds=0.0, pieces=-1):
    """The command line of a job, for slow_job.py."""
    return [line[0], str(Path(__file__).with_name("slow_job.py")), str(seconds), str(pieces), *line[3:]]


def held(line, pieces):
    """The command line of a job whose ranks wait to be interrupted after so many pieces each."""
    return slow(line, pieces=pieces)


def run_here(kind, model, text, out, *options):
    """A job in this process, whose handlers of signals stay; returns the exit status."""
    from headlane.jobs import _main

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return _main.run(kind, command(kind, model, text, out, *options)[4:])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def start(line, timeout=60, **changes):
    """Runs to the end, which must come within the timeout."""
    return subprocess.run(line, env=environment(**changes), capture_output=True, text=True, timeout=timeout)


def succeed(line, **changes):
    run = start(line, **changes)
    assert run.returncode == 0, run.stderr
    return run


def says(run):
    """The messages of the program, without those of mpirun."""
    return [line for line in run.stderr.splitlines() if line.startswith("headlane-")]


def records(out):
    """The number of pieces that journals name."""
    found = 0
    for path in Path(f"{out}.job").glob("*.journal"):
        with contextlib.suppress(FileNotFoundError):
            found += path.read_bytes().count(b"\n")
    return found


def interrupted(line, out, finished, stop, timeout=60, **changes):
    """Starts a job, a held one, and calls stop(process) when journals name that many pieces.

    Returns the exit status and the messages.
    """
    with subprocess.Popen(
        line, env=environment(**changes), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as process:
        end = time.monotonic() + timeout
        while records(out) < finished:
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < end, "no progress"
            time.sleep(0.005)
        stop(process)
        begin = time.monotonic()
        try:
            _, messages = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        assert time.monotonic() - begin < 20
    return process.returncode, messages


def end_of(number):
    return lambda process: process.send_signal(number)


TERM, INTERRUPT = end_of(signal.SIGTERM), end_of(signal.SIGINT)


class Job:
    """A job over lines in a folder: started by line(), or in this process by run()."""

    def __init__(self, kind, folder, model, lines):
        self.kind, self.lines = kind, lines
        self.text, self.out, self.folder = folder / "text", folder / "out", folder / "out.job"
        self.text.write_text("".join(line + "\n" for line in lines))
        self.model = model if kind == "embed" else LITTLE
        self.options = []
        self.wanted = b""

    def line(self, *options):
        return command(self.kind, self.model, self.text, self.out, *self.options, *options)

    def run(self, *options):
        return run_here(self.kind, self.model, self.text, self.out, *self.options, *options)

    def completes(self, *options):
        assert self.run("--resume", *options) == 0
        self.is_complete()

    def is_complete(self):
        assert self.out.read_bytes() == self.wanted
        assert sorted(os.listdir(self.out.parent)) == ["out", "out.job.json", "text"]


def small_job(kind, folder, encoder):
    """A job of five pieces, and what it must write."""
    job = Job(kind, folder, encoder, words(9) if kind == "embed" else ENGLISH[:9])
    job.options = ["--piece-lines", "2"]
    assert job.run() == 0
    job.wanted = job.out.read_bytes()
    job.out.unlink()
    return job


def result(job):
    """What a job must write, by the models themselves."""
    distinct = sorted(set(job.lines))
    if job.kind == "translate":
        found = dict(zip(distinct, models.Translator(LITTLE).translate(distinct)))
        return "".join(found[line] + "\n" for line in job.lines).encode()
    rows = models.SentenceEncoder(job.model).encode(distinct)
    file = io.BytesIO()
    np.save(file, rows[[distinct.index(line) for line in job.lines]])
    return file.getvalue()


def change_byte(path, at=-2, bits=1):
    """Its times stay."""
    data = bytearray(path.read_bytes())
    data[at] ^= bits
    times = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def fail_at_the_end(job, call):
    """Runs a job until it gives the output its name (os.replace), or removes its folder (os.rmdir)."""
    original = getattr(os, call)

    def fail(path, *given, **more):
        if call == "rmdir" or given[0] == job.out:
            raise OSError(28, "No space left on device")
        return original(path, *given, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, call, fail)
        assert job.run() == 1
    assert job.folder.exists()
