"""Jobs that end at every call that writes: power cuts and full disks."""

import os
import shutil

import pytest
from headlane.jobs import _journal
from job_runs import ENGLISH, fail_at_the_end, start, succeed, words


class PowerCut(BaseException):
    pass


class Disk:
    """Fails at the n-th call that writes, half way through; and what was not flushed by then is lost."""

    CALLS = ("pwrite", "fsync", "replace", "unlink", "mkdir", "rmdir")

    def __init__(self, monkeypatch, fail_at, failure=PowerCut):
        self.count, self.fail_at, self.failure = 0, fail_at, failure
        self.unflushed = []
        self.real = {name: getattr(os, name) for name in self.CALLS}
        for name in self.CALLS:
            monkeypatch.setattr(os, name, lambda *given, name=name, **more: self.call(name, *given, **more))

    def call(self, name, *given, **more):
        self.count += 1
        cut = self.count == self.fail_at
        if name == "pwrite":
            file, data, offset = given
            part = memoryview(data)[: len(data) // 2] if cut else data
            self.unflushed.append((os.readlink(f"/proc/self/fd/{file}"), offset, len(part)))
            written = self.real[name](file, part, offset)
        elif cut:
            written = None
        else:
            written = self.real[name](*given, **more)
        if cut:
            if self.failure is PowerCut:
                self.lose()
            raise self.failure
        if name == "fsync":
            path = os.readlink(f"/proc/self/fd/{given[0]}")
            self.unflushed = [one for one in self.unflushed if one[0] != path]
        return written

    def lose(self):
        """The data of files, but not what journals say of them: the worst order."""
        for path, offset, count in self.unflushed:
            if not path.endswith(".journal"):
                with open(path, "r+b") as file:
                    file.seek(offset)
                    file.write(b"\xa5" * count)


def test_power_cuts_at_every_call(job, capsys):
    """Wherever it ends, --resume completes it, and no piece that a journal names is lost."""
    fail_at, finished = 0, []
    while True:
        fail_at += 1
        with pytest.MonkeyPatch.context() as patch:
            disk = Disk(patch, fail_at)
            status = job.run("--overwrite")
        if disk.count < fail_at:
            break
        assert status != 0 or job.out.exists()
        if job.out.exists() and not list(job.folder.iterdir()):
            assert job.out.read_bytes() == job.wanted
            job.out.unlink()
            continue  # all that is missing is that the empty folder is removed
        capsys.readouterr()
        known = 0
        if job.folder.exists() and not (job.folder / "finished").exists():
            known = sum(len(_journal.read_journal(path)) for path in job.folder.glob("*.journal"))
        job.completes()
        error = capsys.readouterr().err
        assert "again" not in error, error
        assert ("lines are finished already" in error) == (known > 0)
        finished.append(known)
        job.out.unlink()
    assert fail_at >= 40
    assert set(finished) == {0, 1, 2, 3, 4, 5}


def test_power_cuts_while_a_job_is_thrown_away(job, tmp_path_factory):
    """One that only lacks its name: --resume completes a job, the old or the new one."""
    fail_at_the_end(job, "replace")
    saved = tmp_path_factory.mktemp("saved") / "job"
    shutil.copytree(job.folder, saved)
    for fail_at in range(1, 20):
        with pytest.MonkeyPatch.context() as patch:
            disk = Disk(patch, fail_at)
            assert job.run("--overwrite") != 0
            assert disk.count == fail_at
        job.completes()
        job.out.unlink()
        shutil.copytree(saved, job.folder)


def test_a_full_disk(job, capsys):
    """Reported, and what was finished stays."""
    full = lambda: OSError(28, "No space left on device")  # noqa: E731
    for fail_at in range(1, 100):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Disk, "CALLS", ("pwrite",))
            disk = Disk(patch, fail_at, full())
            status = job.run()
        if disk.count < fail_at:
            break
        assert status == 1
        assert capsys.readouterr().err == (
            f"headlane-{job.kind}: No space left on device. "
            "Finished pieces are kept: the same command with --resume goes on\n"
        )
        job.completes()
        assert "again" not in capsys.readouterr().err
        job.out.unlink()
    assert fail_at > 10


def test_a_file_of_limited_size(job, tmp_path):
    """The same of the operating system, in a process of its own."""
    lines = words(400) if job.kind == "embed" else ENGLISH * 4
    job.text.write_text("\n".join(lines))
    line = job.line()
    limit = 20_000 if job.kind == "embed" else 3_000
    shell = ["sh", "-c", 'ulimit -f "$0"; exec "$@"', str(limit // 512), *line]
    run = start(shell)
    assert run.returncode == 1
    assert "File too large. Finished pieces are kept" in run.stderr
    again = succeed([*line, "--resume"])
    assert "lines are finished already" in again.stderr
    assert "again" not in again.stderr
    wanted = job.out.read_bytes()
    job.out.unlink()
    assert job.run() == 0
    assert job.out.read_bytes() == wanted
