"""headlane-embed and headlane-translate on several ranks: ./dev test-mpi."""

import os
import random
import re
import signal
import time

import headlane
import pytest
from job_runs import (
    ENGLISH,
    TERM,
    Job,
    held,
    interrupted,
    records,
    result,
    says,
    slow,
    succeed,
    words,
    write_encoder,
)  # fmt: skip
from mpi_runs import children, each, on_ranks, over

pytest.importorskip("mpi4py", reason="mpi4py is not installed")
pytestmark = on_ranks


@pytest.fixture(scope="module")
def large_model(tmp_path_factory):
    """Slow enough to be interrupted."""
    return write_encoder(tmp_path_factory.mktemp("large"), layers=8, d=128)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
def test_embeddings_on_any_number_of_ranks(ranks, encoder_folder, tmp_path):
    job = Job("embed", tmp_path, encoder_folder, words(100))
    run = succeed(over(ranks, job.line("--piece-lines", "3")))
    assert [line.partition(";")[0] for line in says(run)] == [f"headlane-embed: 100 lines in {job.out}"]
    job.wanted = result(job)
    job.is_complete()


@pytest.mark.parametrize("ranks", [2, 5])
def test_translations_on_any_number_of_ranks(ranks, encoder_folder, tmp_path):
    job = Job("translate", tmp_path, encoder_folder, ENGLISH)
    succeed(over(ranks, job.line("--piece-lines", "4", "--threads", "2")))
    job.wanted = result(job)
    job.is_complete()


@pytest.mark.parametrize("lines", [[], ["one"]])
def test_more_ranks_than_lines(lines, encoder_folder, tmp_path):
    job = Job("translate", tmp_path, encoder_folder, lines)
    job.text.write_text("".join(lines))
    succeed(over(3, job.line()))
    job.wanted = result(job)
    job.is_complete()
    run = succeed(over(2, job.line("--resume")))
    assert says(run) == [f"headlane-translate: {job.out} is complete: {len(lines)} lines"]
    job.is_complete()


def test_a_network_without_remote_memory(encoder_folder, tmp_path):
    """The counter by messages over TCP, as between machines without RDMA."""
    job = Job("embed", tmp_path, encoder_folder, words(60))
    settings = {"osc": "^sm,ucx", "pml": "ob1", "btl": "self,tcp"}
    succeed(
        over(3, job.line("--piece-lines", "2")),
        **{f"OMPI_MCA_{name}": value for name, value in settings.items()},
    )
    job.wanted = result(job)
    job.is_complete()


def test_ranks_of_other_instruction_sets(large_model, tmp_path):
    """One job, with an instruction set for each rank; a killed one is resumed by others."""
    job = Job("embed", tmp_path, large_model, words(600))
    isas = headlane.available_isas()
    line = job.line("--piece-lines", "5", "--threads", "1")

    def on_all(line, isas):
        return each(*([f"HEADLANE_ISA={isa}", *line] for isa in isas))

    def stop(process):
        names = {path.stem for path in job.folder.glob("*.journal")}
        assert len(names) > 1
        os.kill(children(process.pid)[-1], signal.SIGKILL)

    code, _ = interrupted(on_all(held(line, 20), isas), job.out, 30, stop)
    assert code != 0
    succeed(on_all([*line, "--resume"], isas[::-1]))
    job.wanted = result(job)
    job.is_complete()


@pytest.mark.parametrize("kind", ["embed", "translate"])
def test_killed_at_any_moment(kind, large_model, tmp_path):
    """A rank is killed, three times; other numbers of ranks go on."""
    draw = random.Random(5 + len(kind))
    lines = [*words(200) * 4, *words(100, seed=1)] if kind == "embed" else ENGLISH * 15
    job = Job(kind, tmp_path, large_model, lines)
    finished, again = 0, []
    for ranks in (3, 2, 4):

        def kill(process, ranks=ranks):
            time.sleep(0.05 * draw.random())
            os.kill(draw.choice(children(process.pid)[-ranks:]), signal.SIGKILL)

        line = over(ranks, held(job.line("--piece-lines", "2", *again), 40))
        code, error = interrupted(line, job.out, finished + 10, kill)
        assert code != 0
        assert not job.out.exists()
        assert "again" not in error
        again = ["--resume"]
        finished = records(job.out)
    run = succeed(over(2, job.line(*again)))
    assert re.search(rf"{2 * finished} of \d+ lines are finished already", run.stderr)
    job.wanted = result(job)
    job.is_complete()


def test_sigterm_to_all_ranks(large_model, tmp_path):
    job = Job("embed", tmp_path, large_model, words(500))
    line = held(job.line("--piece-lines", "2"), 50)
    code, error = interrupted(over(3, line), job.out, 20, TERM)
    assert code != 0
    said = [line for line in error.splitlines() if line.startswith("headlane-embed: ")]
    assert len(said) <= 1  # mpirun itself ends, and may not pass it on
    assert all(
        re.search(r"rank 0 \(\S+\): stopped by SIGTERM\. Finished pieces are kept: ", line) for line in said
    )
    succeed([*job.line(), "--resume"])  # without MPI
    job.wanted = result(job)
    job.is_complete()


def test_progress_and_slow_ranks(large_model, tmp_path):
    """At most a line a second, which counts the lines of all ranks; a slow one gets fewer pieces."""
    job = Job("embed", tmp_path, large_model, words(600))
    line = job.line("--piece-lines", "3")
    begin = time.monotonic()
    # Some two seconds. What each rank may have for itself are the options behind the line.
    run = succeed(each(slow([*line, "--progress"], 0.01), slow([*line, "--batch-size", "2"], 0.1)))
    seconds = time.monotonic() - begin
    shown = [
        re.search(r"(\d+) of 600 lines \((\S+) %\), \S+ lines/s, \S+.* left", line) for line in says(run)
    ]
    counts = [int(found[1]) for found in shown[:-1]]
    assert 1 <= len(counts) <= seconds
    assert counts == sorted(counts)
    fast, slow_one = (int(re.search(rf"1-0000{rank}: (\d+) pieces", run.stdout)[1]) for rank in (0, 1))
    assert fast + slow_one == 200
    assert fast > 2 * slow_one
    job.wanted = result(job)
    job.is_complete()


CARELESS = """
import sys
from headlane.jobs import _main, _output
lost = _output.Output.lost

def careless(output, done):
    if output._ranks.rank == 0 and not hasattr(output, "was_careless"):
        output.was_careless = True
        with open(output._folder.output, "r+b") as file:
            file.write(bytes(4096))
    output._ranks.allgather(None)
    return lost(output, done)

_output.Output.lost = careless
sys.exit(_main.main(sys.argv[1:]))
"""


def test_machines_that_write_whole_pages(encoder_folder, tmp_path):
    """And so replace what others wrote there, the header too: noticed, and computed again."""
    job = Job("embed", tmp_path, encoder_folder, words(100))
    program = job.text.with_name("program.py")
    program.write_text(CARELESS)
    line = job.line("--piece-lines", "5")
    run = succeed(over(3, [line[0], str(program), *line[3:]]))
    assert "pieces computed again, since their results are not as they were written: " in run.stderr
    program.unlink()
    job.wanted = result(job)
    job.is_complete()
