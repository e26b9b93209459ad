"""What the names of a job's input, output and list may be, and files that others put in their place."""

import os
import subprocess
import threading

import numpy as np
import pytest
from headlane.jobs._files import write_json
from job_runs import command, run_here
from mpi_runs import environment
from test_jobs_resume import stop_after

BAD = b"a b\n\xff\xfe\nc\n"
LIST = "2\tnot UTF-8: invalid start byte, at byte 1\n"


@pytest.fixture
def embed(encoder_folder, tmp_path):
    """embed(*options): a job over a text with a bad line; returns the exit status."""
    (tmp_path / "text").write_bytes(BAD)

    def run(*options, out="out"):
        given = ["--bad-lines", "skip", *options]
        return run_here("embed", encoder_folder, tmp_path / "text", tmp_path / out, *given)

    return run


def test_a_list_or_an_output_that_is_another_file_of_the_job(embed, tmp_path, capsys):
    (tmp_path / "link").symlink_to("text")
    os.link(tmp_path / "text", tmp_path / "hard")
    for name in ("text", "link", "hard"):
        assert embed("--bad-lines-file", tmp_path / name) == 1
        assert "--in and --bad-lines-file are the same file: " in capsys.readouterr().err
    assert embed("--overwrite", out="link") == 1
    assert "--in and --out are the same file: " in capsys.readouterr().err
    assert embed("--bad-lines-file", f"{tmp_path}/./out") == 1
    assert "--out and --bad-lines-file are the same file: " in capsys.readouterr().err
    assert (tmp_path / "text").read_bytes() == BAD
    assert sorted(os.listdir(tmp_path)) == ["hard", "link", "text"]


def test_a_list_that_is_a_fifo(embed, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    found = []
    reader = threading.Thread(target=lambda: found.append((tmp_path / "fifo").read_text()), daemon=True)
    reader.start()
    assert embed("--bad-lines-file", tmp_path / "fifo") == 0
    reader.join(10)
    assert found == [LIST]
    assert (tmp_path / "fifo").is_fifo()


def test_a_list_beside_another_file(embed, tmp_path):
    (tmp_path / "list.new").write_text("mine")
    assert embed("--bad-lines-file", tmp_path / "list") == 0
    assert (tmp_path / "list").read_text() == LIST
    assert (tmp_path / "list.new").read_text() == "mine"


def test_an_output_that_is_no_regular_file(embed, tmp_path, capsys):
    os.mkfifo(tmp_path / "fifo")
    assert embed("--overwrite", out="fifo") == 1
    assert f"--out is not a regular file: {tmp_path}/fifo" in capsys.readouterr().err
    assert (tmp_path / "fifo").is_fifo()


def test_an_output_that_is_a_link(embed, tmp_path):
    """It stays one, and the file that it names is written, with OUT.job beside it."""
    assert embed() == 0
    (tmp_path / "link").symlink_to("target")
    assert embed(out="link") == 0  # there is no target yet
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == (tmp_path / "out").read_bytes()
    assert embed(out="link") == 1
    (tmp_path / "target").write_text("old")
    assert embed("--overwrite", out="link") == 0
    assert (tmp_path / "target").read_bytes() == (tmp_path / "out").read_bytes()
    assert embed("--resume", out="target") == 0


def test_an_input_that_is_no_regular_file(encoder_folder, tmp_path, capsys):
    os.mkfifo(tmp_path / "fifo")
    for name in (tmp_path / "fifo", tmp_path, "/dev/null"):
        assert run_here("embed", encoder_folder, name, tmp_path / "out") == 1
        assert f"--in is not a regular file: {name}\n" in capsys.readouterr().err


@pytest.mark.parametrize("closing", ["2>&-", "0<&- 1>&- 2>&-", "2>/dev/full", "2>&1 | true"])
def test_messages_that_nobody_reads(encoder_folder, tmp_path, closing):
    """They change neither the status nor a file."""
    (tmp_path / "text").write_text("a\nb\n")
    options = [] if "2>&-" in closing else ["--progress"]
    line = command("embed", encoder_folder, tmp_path / "text", tmp_path / "out", *options)
    run = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f'"$@" {closing}', "bash", *line], env=environment()
    )
    assert run.returncode == 0
    assert np.load(tmp_path / "out").shape == (2, 32)


def test_a_name_that_leaves_no_room(embed, tmp_path, capsys):
    """It is refused before anything is computed, and one that just fits is not."""
    for length, status in ((243, 1), (242, 0)):
        assert embed(out="n" * length) == status
        assert ("File name too long: " in capsys.readouterr().err) == bool(status)
        assert len(os.listdir(tmp_path)) == (1 if status else 3)


def test_files_of_others(job, capsys):
    """A journal with a name that no run gives, and receipts that lack something."""
    stop_after(job, 3)
    (job.folder / "foo.journal").write_bytes(b"x\n")
    job.completes()
    receipt = job.out.with_name("out.job.json")
    write_json(receipt, {"headlane": "0"})
    assert job.run("--resume") == 1
    assert "out exists; --overwrite replaces it" in capsys.readouterr().err
    write_json(receipt, {"output": {"size": job.out.stat().st_size}})
    assert job.run("--resume") == 1
    assert "out is of another job; --overwrite begins anew. headlane: none before" in capsys.readouterr().err
