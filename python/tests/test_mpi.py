"""headlane.mpi on ranks of mpirun: mpi_ranks.py in each."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import headlane
import pytest

pytest.importorskip("mpi4py", reason="mpi4py is not installed")
pytestmark = pytest.mark.skipif(
    os.environ.get("HEADLANE_TEST_MPI") != "on" or not shutil.which("mpirun"),
    reason="./dev test-mpi runs these",
)

PROGRAM = Path(__file__).with_name("mpi_ranks.py")
ENVIRONMENT = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


def mpirun(*arguments: str) -> subprocess.CompletedProcess:
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=ENVIRONMENT)


def program(folder: Path) -> list[str]:
    return [sys.executable, "-m", "mpi4py", str(PROGRAM), str(folder)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_ranks_have_the_bits_of_one_process(ranks, tmp_path):
    run = mpirun("-n", str(ranks), *program(tmp_path))
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == f"passed {headlane.isa()}"


def test_ranks_of_different_instruction_sets(tmp_path):
    isas = headlane.available_isas()
    ranks: list[str] = []
    for isa in isas:
        ranks += [":"] * bool(ranks) + ["-n", "1", "env", f"HEADLANE_ISA={isa}", *program(tmp_path)]
    run = mpirun(*ranks)
    assert run.returncode == 0, run.stderr
    assert "passed" in run.stdout


def test_an_exception_of_one_rank_ends_the_job(tmp_path):
    script = tmp_path / "fails.py"
    script.write_text(
        "from headlane import mpi\n"
        "comm = mpi.Communicator()\n"
        "if comm.rank == 1: raise RuntimeError('this rank is lost')\n"
        "comm.agree('test', 'text')\n"
    )
    run = mpirun("-n", "3", sys.executable, "-m", "mpi4py", str(script))
    assert run.returncode != 0
    assert "this rank is lost" in run.stderr
