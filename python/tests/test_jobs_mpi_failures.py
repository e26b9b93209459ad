"""Jobs on several ranks of which one fails, or differs: ./dev test-mpi."""

import os
import re
import shutil
import time

import headlane
import pytest
from job_runs import Job, command, records, result, says, start, succeed, words
from mpi_runs import each, on_ranks, over

pytest.importorskip("mpi4py", reason="mpi4py is not installed")
pytestmark = on_ranks


FUNNELED = """
import os, sys, threading
import mpi4py
mpi4py.rc.thread_level = "serialized"
from mpi4py import MPI
MPI.Query_thread = lambda: MPI.THREAD_FUNNELED
threading.Thread.start = lambda thread: (print("a thread", file=sys.stderr, flush=True), os._exit(9))
from headlane.jobs import _main
sys.exit(_main.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("funneled", [False, True])
def test_a_full_disk_of_one_rank(encoder_folder, tmp_path, tmp_path_factory, funneled):
    """An error of one rank ends all of them at once, by one message; --resume completes the job.
    Where one thread only may call MPI, no other is started."""
    job = Job("embed", tmp_path, encoder_folder, words(1000))
    line = whole = job.line("--piece-lines", "5")
    if funneled:
        program = tmp_path_factory.mktemp("program") / "program.py"
        program.write_text(FUNNELED)
        line = [line[0], str(program), *line[3:]]
    small = ["sh", "-c", 'ulimit -f 100; exec "$@"', "sh", *line]  # 51,200 bytes
    begin = time.monotonic()
    run = start(each(line, small, line))
    assert time.monotonic() - begin < 20
    assert run.returncode != 0
    assert "a thread" not in run.stderr
    (message,) = says(run)
    assert re.fullmatch(
        r"headlane-embed: rank 1 \(\S+\): File too large\. Finished pieces are kept: .*", message
    )
    finished = records(job.out)
    again = succeed(over(2, [*whole, "--resume"]))
    assert f"{5 * finished} of 1000 lines are finished already" in again.stderr
    assert "again" not in again.stderr
    job.wanted = result(job)
    job.is_complete()


@pytest.fixture
def small_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.system(f"mount -t tmpfs -o size=256k tmpfs {disk} 2>/dev/null") != 0:
        pytest.skip("file systems cannot be mounted here")
    yield disk
    os.system(f"umount {disk}")


def test_a_full_disk(small_disk, encoder_folder, tmp_path):
    job = Job("embed", tmp_path, encoder_folder, words(3000))
    job.out = small_disk / "out"
    line = job.line("--piece-lines", "5")
    run = start(over(2, line))
    assert run.returncode != 0
    assert "No space left on device. Finished pieces are kept" in run.stderr
    finished = records(job.out)
    assert finished > 100
    os.system(f"mount -o remount,size=2m {small_disk}")
    again = succeed(over(3, [*line, "--resume"]))
    assert f"{5 * finished} of 3000 lines are finished already" in again.stderr
    assert "again" not in again.stderr
    assert job.out.read_bytes() == result(job)


def refused(run):
    """The one message of a job that stops before it begins."""
    assert run.returncode == 1
    (message,) = says(run)
    return message


def test_ranks_that_differ(encoder_folder, tmp_path):
    job = Job("embed", tmp_path, encoder_folder, words(5))
    other = tmp_path / "other"
    shutil.copytree(encoder_folder, other)
    data = bytearray((other / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (other / "model.safetensors").write_bytes(data)
    line = job.line()
    message = refused(start(each(line, [*line, "--pooling", "cls"], line)))
    assert message == "headlane-embed: ranks differ in options: pooling: None on ranks 0, 2; 'cls' on rank 1"
    message = refused(start(each(line, line, command("embed", "nothing", job.text, job.out))))
    assert "ranks differ in options: model: " in message

    for folder, source, text in (
        ("a", encoder_folder, "a\n"),
        ("b", other, "a\n"),
        ("c", encoder_folder, "b\n"),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "text").write_text(text)
        shutil.copytree(source, tmp_path / folder / "model")
    here = command("embed", "model", "text", job.out)
    in_folder = {name: ["env", "-C", str(tmp_path / name), *here] for name in "abc"}
    message = refused(start(each(in_folder["a"], in_folder["b"], in_folder["a"])))
    assert message.startswith("headlane-embed: ranks differ in the model: model.safetensors: ")
    assert message.endswith(" on rank 1")
    message = refused(start(each(in_folder["a"], in_folder["a"], in_folder["c"])))
    assert message.startswith("headlane-embed: ranks differ in the input: size and ends: '2 bytes, ")
    assert message.endswith(" on rank 2")
    assert not [name for name in os.listdir(tmp_path) if name.startswith("out")]


def test_ranks_of_other_versions(encoder_folder, tmp_path):
    job = Job("embed", tmp_path, encoder_folder, words(5))
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\nfrom headlane.jobs import _main\n_main.version = lambda: '0.0.1'\nsys.exit(_main.main())\n"
    )
    line = job.line()
    old = [line[0], str(program), *line[3:]]
    message = refused(start(each(line, old)))
    ours = headlane.__version__
    assert (
        message == f"headlane-embed: ranks differ in headlane: version: '{ours}' on rank 0; '0.0.1' on rank 1"
    )


def test_what_fails_on_all_ranks_is_said_once(encoder_folder, tmp_path):
    job = Job("embed", tmp_path, encoder_folder, ["a", "\0", "b"])
    run = start(over(3, job.line()))
    assert run.returncode == 1
    assert [line.partition("text, ")[2] or line for line in says(run)] == [
        "line 2: a NUL, at byte 1",
        "headlane-embed: 1 bad lines; --bad-lines skip puts rows of zeros in their place",
    ]
    job.text.unlink()
    assert refused(start(over(3, job.line()))).startswith("headlane-embed: No such file or directory: ")
    run = start(over(3, job.line("--weights", "int3")))
    assert run.returncode == 2
    assert len(says(run)) == 1


def test_without_mpi4py(encoder_folder, tmp_path):
    job = Job("embed", tmp_path, encoder_folder, words(5))
    (tmp_path / "mpi4py.py").write_text("raise ImportError('no mpi4py here')")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    run = start(over(2, job.line()), PYTHONPATH=path)
    assert run.returncode == 1
    assert "no mpi4py here: pip install 'headlane[mpi]'" in run.stderr
