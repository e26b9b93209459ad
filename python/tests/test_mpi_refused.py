"""Ranks of mpirun that cannot go on together say so, on all of them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import headlane
import pytest
from mpi_runs import environment, on_ranks, over

pytest.importorskip("mpi4py", reason="mpi4py is not installed")
pytestmark = on_ranks

PROGRAM = Path(__file__).with_name("mpi_refused.py")


def run(line: list[str]) -> subprocess.CompletedProcess:
    return subprocess.run(line, capture_output=True, text=True, timeout=120, env=environment())


def run_script(ranks: int, text: str, folder: Path) -> subprocess.CompletedProcess:
    script = folder / "script.py"
    script.write_text(text)
    return run(over(ranks, [sys.executable, "-m", "mpi4py", str(script)]))


@pytest.mark.parametrize("ranks", [2, 3])
def test_what_one_rank_refuses(ranks, tmp_path):
    parts = ["models"] if importlib.util.find_spec("headlane.models") else []
    done = run(over(ranks, [sys.executable, "-m", "mpi4py", str(PROGRAM), str(tmp_path), *parts]))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "passed"


CONSTRUCTS = """
from headlane import _core, mpi
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 1: _core.version = lambda: "0.0.1"
try: mpi.Communicator()
except ValueError as error: MPI.COMM_WORLD.Barrier(); print(f"{error}\\n", end="", flush=True)
"""


def test_ranks_of_another_version(tmp_path):
    done = run_script(3, CONSTRUCTS, tmp_path)
    assert done.returncode == 0, done.stderr
    expected = (
        "mpi.Communicator: the ranks differ: ranks 0, 2 have headlane "
        f"{headlane.__version__}; rank 1 has headlane 0.0.1"
    )
    assert done.stdout.splitlines() == [expected] * 3


def test_mpi_without_threads(tmp_path):
    script = CONSTRUCTS.replace("if MPI", "if False and MPI")
    done = run_script(2, f"import mpi4py\nmpi4py.rc.thread_level = 'single'\n{script}", tmp_path)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert len(said) == 2
    for line in said:
        assert line.startswith("mpi.Communicator: MPI was initialised for programs without threads")


@pytest.mark.parametrize("level", ["funneled", "serialized", "multiple"])
def test_mpi_with_threads(level, tmp_path):
    script = (
        f"import mpi4py\nmpi4py.rc.thread_level = {level!r}\nfrom headlane import mpi\nmpi.Communicator()\n"
    )
    done = run_script(2, script, tmp_path)
    assert done.returncode == 0, done.stderr


ENDS = """
import numpy as np, os, signal, headlane
from headlane import mpi
from mpi4py import MPI
comm = mpi.Communicator()
cut = mpi.SequenceCut.contiguous(2048, comm.size)
x = np.ones((1, 2, cut.length_of(comm.rank), 16), np.float32)
attend = lambda: mpi.attention(comm, x, x, x, keys=cut, queries=cut)
attend()
if comm.rank == 1:
    CHANGE
    try: attend()
    except EXCEPTION as error: print(type(error).__name__, flush=True)
    for again in (attend, lambda: comm.agree("what", "mine")):
        try: again()
        except RuntimeError as error: print(error, flush=True)
    MPI.COMM_WORLD.Abort(0)
attend()
"""


@pytest.mark.parametrize(
    ("change", "exception"),
    [
        ("comm._wait = lambda ticket: os.kill(os.getpid(), signal.SIGINT)", "KeyboardInterrupt"),
        ("comm._start_send = lambda *given: 1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_communicator_whose_call_failed_is_refused(change, exception, tmp_path):
    done = run_script(2, ENDS.replace("CHANGE", change).replace("EXCEPTION", exception), tmp_path)
    refusal = "mpi.Communicator: a call failed before; its ranks may no longer match"
    assert done.stdout.splitlines()[:3] == [exception, refusal, refusal], done.stderr


INTERRUPTED = """
import os, signal, sys
from headlane import models, mpi
from mpi4py import MPI
comm = mpi.Communicator()
model = models.T5(sys.argv[1], team=comm)
ids = [[5, 9, 30, 1]] * 4
model.generate(ids)
if comm.rank == 1:
    gather, gathers = comm._all_gather, []
    def interrupted(*given):  # by a signal in the middle of a call: 20 of its about 100 all-gathers are done
        gathers.append(given)
        if len(gathers) == 20: os.kill(os.getpid(), signal.SIGINT)
        gather(*given)
    comm._all_gather = interrupted
    try: model.generate(ids, num_beams=4, max_length=60)
    except KeyboardInterrupt: print("interrupted", flush=True)
    try: model.generate(ids)
    except RuntimeError as error: print(error, flush=True)
    MPI.COMM_WORLD.Abort(0)
model.generate(ids, num_beams=4, max_length=60)
"""


def test_a_model_whose_call_was_interrupted_is_refused(tmp_path):
    pytest.importorskip("headlane.models", reason="headlane was built without its models")
    little = Path(__file__).parents[2] / "models/little/en-fr"
    done = run_script(2, INTERRUPTED.replace("sys.argv[1]", repr(str(little))), tmp_path)
    refusal = "mpi.Communicator: a call failed before; its ranks may no longer match"
    assert done.stdout.splitlines()[:2] == ["interrupted", refusal], done.stderr
