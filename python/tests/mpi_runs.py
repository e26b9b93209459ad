"""Programs on several ranks, started by mpirun."""

import contextlib
import os
import shutil
from pathlib import Path

import pytest

on_ranks = pytest.mark.skipif(
    os.environ.get("HEADLANE_TEST_MPI") != "on" or not shutil.which("mpirun"),
    reason="./dev test-mpi runs these",
)

MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none"]


def environment(**changes):
    """Not that of a launcher; one thread, since tests run many processes."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMI"))}
    mine.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1")
    return {**mine, **changes}


def over(ranks, line):
    return [*MPIRUN, "-n", str(ranks), *line]


def each(*lines):
    """A rank for each line, which may begin with settings of the environment: NAME=value."""
    parts = []
    for line in lines:
        settings = [word for word in line if word.split("=")[0].isupper() and "=" in word]
        parts += [":", "-n", "1", "env", *settings, *line[len(settings) :]]
    return [*MPIRUN, *parts[1:]]


def children(parent):
    """The ids of a process's children."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(stat.parent.name))
    return sorted(found)


def runs(process):
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(") ")[2][0] not in "ZX"  # ended, but its parent has not asked
