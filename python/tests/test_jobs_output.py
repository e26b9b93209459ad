"""Results that something changes before the job is complete, as a file system that ranks share may do."""

import fcntl
import os

import pytest
from headlane.jobs import _journal, _output
from job_runs import change_byte

AGAIN = "pieces computed again, since their results are not as they were written: "


def spoiled(monkeypatch, job, at, times, pieces=3):
    """Changes a byte of what is written, each time a rank has finished so many pieces."""
    add = _journal.Journal.add

    def spoil(journal, *given):
        add(journal, *given)
        if len(journal.records) >= pieces and times:
            times.pop()
            change_byte(
                job.folder / "output" if job.kind == "embed" else next(job.folder.glob("*.spool")), at
            )

    monkeypatch.setattr(_journal.Journal, "add", spoil)


def test_changed_results_are_computed_again(job, capsys, monkeypatch):
    spoiled(monkeypatch, job, 128 if job.kind == "embed" else 0, [1])
    assert job.run() == 0
    assert f"headlane-{job.kind}: {AGAIN}1\n" in capsys.readouterr().err
    job.is_complete()


@pytest.mark.parametrize("at", [0, 60, 128, -1])
def test_a_changed_output(job, capsys, monkeypatch, at):
    """Wherever it is: in the header, between two pieces, in what was joined of spools."""
    check, times = _output.Output._check, [1]

    def spoil(output, done):
        if times:
            change_byte(job.folder / "output", at, times.pop())
        return check(output, done)

    monkeypatch.setattr(_output.Output, "_check", spoil)
    assert job.run() == 0
    in_header = job.kind == "embed" and at in (0, 60)
    assert (AGAIN + "1" in capsys.readouterr().err) != in_header
    job.is_complete()


def test_a_disk_that_changes_everything(job, capsys, monkeypatch):
    """The job ends, and a better disk completes it."""
    with monkeypatch.context() as patch:
        spoiled(patch, job, -1, list(range(99)), pieces=5)
        assert job.run() == 1
    error = capsys.readouterr().err
    assert (
        "out.job: results are not in their files as they were written, 3 times; pieces: 1. Finished" in error
    )
    assert not job.out.exists()
    job.completes()


def test_how_a_shared_file_is_written(job, monkeypatch):
    """Nothing but the bytes that are given: see _output.py."""
    write, seen = _journal.write_at, []

    def watched(file, data, offset):
        if os.readlink(f"/proc/self/fd/{file}").endswith("/output"):
            seen.append(fcntl.fcntl(file, fcntl.F_GETFL))
        write(file, data, offset)

    for module in (_journal, _output):
        monkeypatch.setattr(module, "write_at", watched)
    assert job.run() == 0
    assert len(seen) == 5
    assert all(flags & os.O_DSYNC and flags & os.O_ACCMODE == os.O_WRONLY for flags in seen)
