"""headlane.mpi on ranks of mpirun: mpi_ranks.py in each."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import headlane
import pytest
from mpi_runs import children, each, environment, on_ranks, over, runs
from small_bert import write_bert
from small_t5 import write_t5

pytest.importorskip("mpi4py", reason="mpi4py is not installed")
pytestmark = on_ranks

PROGRAM = Path(__file__).with_name("mpi_ranks.py")
WRITTEN = {"Bert": write_bert, "T5": write_t5}
LAYERS = {"Bert": 4, "T5": 2}


def run(line: list[str]) -> subprocess.CompletedProcess:
    return subprocess.run(line, capture_output=True, text=True, timeout=300, env=environment())


def program(folder: Path) -> list[str]:
    return [sys.executable, "-m", "mpi4py", str(PROGRAM), str(folder)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 7, 8])
def test_ranks_have_the_bits_of_one_process(ranks, tmp_path):
    done = run(over(ranks, program(tmp_path)))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"passed {headlane.isa()}"


def test_ranks_of_different_instruction_sets(tmp_path):
    done = run(each(*([f"HEADLANE_ISA={isa}", *program(tmp_path)] for isa in headlane.available_isas())))
    assert done.returncode == 0, done.stderr
    assert "passed" in done.stdout


def test_an_exception_of_one_rank_ends_the_job(tmp_path):
    script = tmp_path / "fails.py"
    script.write_text(
        "from headlane import mpi\n"
        "comm = mpi.Communicator()\n"
        "if comm.rank == 1: raise RuntimeError('this rank is lost')\n"
        "comm.agree('test', 'text')\n"
    )
    done = run(over(3, [sys.executable, "-m", "mpi4py", str(script)]))
    assert done.returncode != 0
    assert "this rank is lost" in done.stderr


ATTENDS = """
import numpy as np
from headlane import mpi
comm = mpi.Communicator()
cut = mpi.SequenceCut.cyclic(4096, comm.size)
x = np.ones((1, 8, cut.length_of(comm.rank), 64), np.float32)
mpi.attention(comm, x, x, x, keys=cut, queries=cut, is_causal=True)
print("ready\\n", end="", flush=True)  # in one write
while True:
    mpi.attention(comm, x, x, x, keys=cut, queries=cut, is_causal=True)
"""


GENERATES = """
from headlane import models, mpi
model = models.T5("folder", team=mpi.Communicator())
ids = [[5, 9, 30, 1], [7, 1]]
model.generate(ids, max_length=5)
print("ready\\n", end="", flush=True)  # in one write
while True: model.generate(ids, num_beams=3, max_length=50)
"""

EMBEDS = """
from headlane import models, mpi
model = models.Bert("folder", team=mpi.Communicator())
ids = [[2, 7, 40, 3] * 20, [2, 3]]
model.embed(ids)
print("ready\\n", end="", flush=True)  # in one write
while True: model.embed(ids)
"""

KILLED = {"attention": ATTENDS, "T5": GENERATES, "Bert": EMBEDS}


@pytest.mark.parametrize(
    ("program", "seed"), [("attention", 0), ("attention", 1), ("attention", 2), ("T5", 3), ("Bert", 4)]
)
def test_a_killed_rank_ends_the_job(program, seed, tmp_path):
    """Killed at any moment of calls that follow each other: within seconds, and mpirun names it."""
    if program in WRITTEN:
        pytest.importorskip("headlane.models", reason="headlane was built without its models")
        (tmp_path / "folder").mkdir()
        WRITTEN[program](tmp_path / "folder")
    (tmp_path / "program.py").write_text(KILLED[program])
    draw = random.Random(seed)
    line = over(3, [sys.executable, "program.py"])
    with subprocess.Popen(
        line, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as job:
        for _ in range(3):
            said = job.stdout.readline()
            if said != "ready\n":
                job.terminate()
            assert said == "ready\n", job.stderr.read()
        time.sleep(0.2 * draw.random())
        ranks = children(job.pid)[-3:]
        killed = draw.randrange(3)
        os.kill(ranks[killed], signal.SIGKILL)
        _, said = job.communicate(timeout=20)
    assert job.returncode != 0
    assert f"process rank {killed}" in said
    assert "signal 9 (Killed)" in said
    end = time.monotonic() + 5
    while any(map(runs, ranks)):
        assert time.monotonic() < end, "ranks live on"
        time.sleep(0.05)


LOADS = """
from headlane import models, mpi
from mpi4py import MPI

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon:"))

comm = mpi.Communicator()
models.MODEL("small", team=comm)  # what is not of the model
before = resident()
model = models.MODEL("large", team=comm)
most = max(MPI.COMM_WORLD.allgather(resident() - before))
if comm.rank == 0: print(most)
"""


@pytest.mark.parametrize("model", WRITTEN)
def test_memory_of_a_rank_is_its_share(model, tmp_path, report):
    """1/P of that of one rank, and 2 % of it and two huge pages."""
    pytest.importorskip("headlane.models", reason="headlane was built without its models")
    for name, sizes in (("small", (2, 32, 50)), ("large", (LAYERS[model], 512, 8000))):
        (tmp_path / name).mkdir()
        WRITTEN[model](tmp_path / name, *sizes)
    (tmp_path / "loads.py").write_text(LOADS.replace("MODEL", model))
    memory = {}
    for ranks in (1, 2, 4):
        done = run(over(ranks, ["-wdir", str(tmp_path), sys.executable, "-m", "mpi4py", "loads.py"]))
        assert done.returncode == 0, done.stderr
        memory[ranks] = int(done.stdout)
    weights = (tmp_path / "large/model.safetensors").stat().st_size / 1024
    huge_pages = 2 * 2048  # in KiB: small matrices begin and end in their midst
    assert 0.98 * weights < memory[1] < 1.02 * weights + huge_pages
    for ranks in (2, 4):
        share = memory[ranks] / memory[1]
        report(f"{model} of {ranks} ranks: {share:.4f} of the memory of one rank")
        assert share <= 1 / ranks + 0.02 + huge_pages / memory[1], memory
