"""Jobs that were interrupted, and what may and may not have changed since."""

import errno
import json
import shutil
import signal
import sys

import headlane
import pytest
from headlane.jobs import _journal, _main
from job_runs import change_byte, fail_at_the_end, held, interrupted, records


def stop_after(job, pieces):
    """Ends a run in the middle."""
    with pytest.MonkeyPatch.context() as patch:
        add = _journal.Journal.add

        def one_more(self, *given):
            add(self, *given)
            if len(self.records) == pieces:
                raise KeyboardInterrupt

        patch.setattr(_journal.Journal, "add", one_more)
        assert job.run() == 1


def test_without_resume_an_unfinished_job_is_kept(job, capsys):
    stop_after(job, 3)
    capsys.readouterr()
    assert job.run() == 1
    assert "out.job is of an unfinished job; --resume goes on with it" in capsys.readouterr().err
    job.completes()
    assert "6 of 9 lines are finished already" in capsys.readouterr().err


def test_overwrite_begins_anew(job, capsys):
    stop_after(job, 3)
    capsys.readouterr()
    assert job.run("--overwrite") == 0
    assert "already" not in capsys.readouterr().err
    assert job.out.read_bytes() == job.wanted


def test_resume_without_a_job_begins_one(job):
    job.completes()


def test_resumed_many_times_with_other_sizes(job, capsys):
    """Sizes of pieces are those of the first run."""
    stop_after(job, 1)
    job.options = ["--resume", "--piece-lines", "5"]
    stop_after(job, 1)
    stop_after(job, 1)
    job.options = []
    job.completes()
    assert "6 of 9 lines are finished already" in capsys.readouterr().err


def refused(job, capsys, *options):
    """Returns the message of a resume."""
    capsys.readouterr()
    assert job.run("--resume", *options) == 1
    assert not job.out.exists()
    assert job.folder.exists()
    return capsys.readouterr().err


def test_a_changed_input_is_refused(job, capsys):
    stop_after(job, 2)
    change_byte(job.text)
    assert "input digest: " in refused(job, capsys)
    change_byte(job.text)
    with open(job.text, "a") as file:
        file.write("x\n")
    error = refused(job, capsys)
    assert "input size: " in error
    assert "input lines: 9 before, 10 now" in error


def test_a_changed_option_is_refused(job, capsys):
    stop_after(job, 2)
    named = {"--weights=int8": "options weights: float32 before, int8 now"}
    named["--max-line-bytes=9999"] = "max_line_bytes: 65536 before, 9999 now"
    own = {
        "embed": {"--pooling=cls": "options pooling: None before, cls now", "--prompt=a": "options prompt: "},
        "translate": {
            "--num-beams=2": "options num_beams: none before, 2 now",
            "--prefix=a": "options prefix",
        },
    }
    for option, message in {**named, **own[job.kind]}.items():
        assert message in refused(job, capsys, option)
    job.completes("--threads=1", "--batch-size=1", "--bad-lines=skip", "--progress")


def test_another_version_is_refused(job, capsys, monkeypatch):
    stop_after(job, 2)
    monkeypatch.setattr(_main, "version", lambda: "0.0.1")
    assert f"headlane: {headlane.__version__} before, 0.0.1 now" in refused(job, capsys)


def add_tensor(file, size):
    """Appends a tensor of zeros, which no model reads, to a file of safetensors."""
    data = file.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header, begin = json.loads(data[8:end]), len(data) - end
    header["unread"] = {"dtype": "F32", "shape": [size // 4], "data_offsets": [begin, begin + size]}
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + data[end:] + bytes(size))


@pytest.mark.parametrize("at", [-2, (9 << 20) + 12345])
def test_a_changed_model_is_refused(job, capsys, tmp_path_factory, at):
    """One byte, anywhere in a file of any size."""
    job.model = shutil.copytree(job.model, tmp_path_factory.mktemp("model") / "model")
    add_tensor(job.model / "model.safetensors", 17 << 20)
    stop_after(job, 2)
    change_byte(job.model / "model.safetensors", at)
    error = refused(job, capsys)
    assert "model model.safetensors: " in error
    assert "config.json" not in error
    change_byte(job.model / "model.safetensors", at)
    job.completes()


def damaged(data, at):
    return data[:at] + bytes([data[at] ^ 2]) + data[at + 1 :]


def test_a_damaged_journal_is_refused(job, capsys):
    stop_after(job, 3)
    (journal,) = job.folder.glob("*.journal")
    whole = journal.read_bytes()
    for at in range(0, whole[:-1].rindex(b"\n"), 7):
        journal.write_bytes(damaged(whole, at))
        assert refused(job, capsys).endswith("is damaged; --overwrite begins anew\n")
    journal.write_bytes(whole)
    job.completes()


def test_a_last_record_that_is_there_in_part(job, capsys):
    """A page of it, or a sector, may be missing, even if its end is there."""
    stop_after(job, 3)
    (journal,) = job.folder.glob("*.journal")
    whole = journal.read_bytes()
    records = _journal.read_journal(journal)
    begin = whole[:-1].rindex(b"\n") + 1
    for at in range(begin, len(whole)):
        journal.write_bytes(damaged(whole, at))
        assert _journal.read_journal(journal) == records[:2]
    journal.write_bytes(damaged(whole, begin) + b"1 2")  # another was begun after it
    assert "line 3, is damaged" in refused(job, capsys)
    journal.write_bytes(whole[: begin + 3] + bytes(len(whole) - begin - 5) + whole[-2:])
    job.completes()
    assert "4 of 9 lines are finished already" in capsys.readouterr().err


def test_damaged_settings_are_refused(job, capsys):
    stop_after(job, 3)
    change_byte(job.folder / "job.json", 5)
    assert "job.json is damaged" in refused(job, capsys)


def test_an_incomplete_last_record_is_ignored(job, capsys):
    stop_after(job, 3)
    (journal,) = job.folder.glob("*.journal")
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-1])
    job.completes()
    assert "4 of 9 lines are finished already" in capsys.readouterr().err


def test_lost_results_are_computed_again(job, capsys):
    """As after a file system's own loss."""
    stop_after(job, 3)
    if job.kind == "embed":
        change_byte(job.folder / "output", 128 + 2 * 32 * 4)  # in the second piece
    else:
        change_byte(next(job.folder.glob("*.spool")), 0)
    job.completes()
    assert (
        "pieces computed again, since their results are not as they were written: 1\n"
        in capsys.readouterr().err
    )


def test_an_input_that_changes_meanwhile(job, capsys):
    compute, module = job.kind.capitalize(), sys.modules["headlane.jobs._commands"]
    with pytest.MonkeyPatch.context() as patch:
        original, changes = getattr(module, compute).compute, [-2]

        def changed(self, *given):
            if changes:
                change_byte(job.text, changes.pop())
            return original(self, *given)

        patch.setattr(getattr(module, compute), "compute", changed)
        assert job.run() == 1
    assert "the input changed while the job was running, after line 8" in capsys.readouterr().err


def test_one_job_at_a_time(job, capsys, monkeypatch):
    """A process that is killed lets go of its job, which another one then completes."""

    def refused_until_killed(process):
        with monkeypatch.context() as patch:
            patch.setattr(_journal.time, "sleep", lambda seconds: None)
            for option in ("--resume", "--overwrite"):
                assert job.run(option) == 1
                error = capsys.readouterr().err
                assert f"another job is writing {job.out}: process {process.pid} on " in error
        assert records(job.out) == 3
        process.kill()

    code, _ = interrupted(held(job.line(), 3), job.out, 3, refused_until_killed)
    assert code == -signal.SIGKILL
    job.completes()
    assert "6 of 9 lines are finished already" in capsys.readouterr().err


def test_two_jobs_that_begin_together(job, capsys, monkeypatch):
    monkeypatch.setattr(_journal.JobFolder, "lock", lambda folder: None)
    exists = _journal.Path.exists
    stop_after(job, 1)
    monkeypatch.setattr(_journal.Path, "exists", lambda path: path != job.folder and exists(path))
    capsys.readouterr()
    assert job.run() == 1
    assert "another job is writing" in capsys.readouterr().err


def test_a_job_that_another_completes_meanwhile(job, capsys, monkeypatch):
    """What it locks in the end is the file of a folder that is gone."""
    stop_after(job, 3)

    def lockf(file, how):
        if job.folder.exists():
            shutil.rmtree(job.folder)
            raise BlockingIOError(errno.EAGAIN, "")

    monkeypatch.setattr(_journal.fcntl, "lockf", lockf)
    assert job.run("--resume") == 1
    assert "another job finished" in capsys.readouterr().err


def test_a_file_system_without_locks(job, capsys, monkeypatch):
    def lockf(file, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(_journal.fcntl, "lockf", lockf)
    job.completes()
    assert "out.job: a file system without locks; no second job may run" in capsys.readouterr().err


def test_a_complete_job_is_not_computed_again(job, capsys):
    """Of another model, input or option it is refused, and without --resume in any case."""
    job.completes()
    before = job.out.stat()
    capsys.readouterr()
    job.completes("--threads=2")
    assert capsys.readouterr().err == f"headlane-{job.kind}: {job.out} is complete: 9 lines\n"
    for options, message in (
        (["--resume", "--weights=int8"], "out is of another job; --overwrite begins anew. options weights: "),
        ([], "out exists; --overwrite replaces it"),
    ):
        assert job.run(*options) == 1
        assert message in capsys.readouterr().err
        job.is_complete()
    assert job.out.stat().st_mtime_ns == before.st_mtime_ns
    with open(job.out, "ab") as file:
        file.write(b"x")
    assert job.run("--resume") == 1
    assert "out exists; --overwrite replaces it" in capsys.readouterr().err
    job.out.unlink()
    job.completes()


@pytest.mark.parametrize("call", ["replace", "rmdir"])
def test_a_job_that_ends_before_its_folder_is_removed(job, capsys, call):
    """The same job completes it, and no other."""
    fail_at_the_end(job, call)
    assert job.out.exists() == (call == "rmdir")
    assert job.run("--resume", "--weights=int8") == 1
    assert "out.job is of another job; --overwrite begins anew" in capsys.readouterr().err
    job.completes()
    assert capsys.readouterr().err == f"headlane-{job.kind}: {job.out} is complete: 9 lines\n"
