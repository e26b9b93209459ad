"""headlane over many processes, by MPI: sequences and layers that are cut over ranks.

Every rank calls the same functions in the same order; results are bit-identical to those of one process,
for any number of ranks and if ranks have different instruction sets. Arguments that differ between ranks, or
that one of them refuses, raise the same ValueError on all of them, which names the ranks. A TypeError that Python
itself raises for a call (an unknown or missing parameter), or for an object that is no Communicator, is that of one
rank; `python -m mpi4py` then ends the job.

    from headlane import mpi

    comm = mpi.Communicator()                     # MPI.COMM_WORLD
    cut = mpi.SequenceCut.cyclic(length, comm.size)
    q, k, v = (x[:, :, cut.positions(comm.rank)] for x in (q, k, v))
    out = mpi.attention(comm, q, k, v, keys=cut, queries=cut, is_causal=True)

Needs the package mpi4py. Programs that embed or translate the lines of a file: headlane.jobs.
"""

from __future__ import annotations

from ._attention import attention, attention_over_cache
from ._communicator import Communicator
from ._kv_cache import KvCache
from ._sequence_cut import SequenceCut

__all__ = ["Communicator", "KvCache", "SequenceCut", "attention", "attention_over_cache"]
for _name in __all__:
    globals()[_name].__module__ = __name__  # where users find them
