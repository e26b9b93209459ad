"""Jobs over the lines of a file, alone or on the ranks of MPI: headlane-embed and headlane-translate.

    mpirun -n 64 headlane-embed MODEL --in corpus.txt --out vectors.npy
    mpirun -n 64 headlane-translate MODEL --in corpus.txt --out out.txt

`python -m headlane.jobs embed …` is the same program. The file written is bit-identical for any number
of ranks and threads, any instruction set, and however often the job was interrupted and resumed.
"""

from __future__ import annotations

from ._main import main

__all__ = ["main"]
