"""Communicator: the ranks of an MPI communicator of mpi4py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import _core

_SINGLE = (
    "MPI was initialised for programs without threads, and headlane starts some: let mpi4py.rc.thread_level "
    'be "funneled" or a higher one before mpi4py.MPI is imported'
)
_LARGEST = 1 << 30  # bytes of a message: MPI counts with 32 bits


class Communicator:
    """The ranks of a communicator, which is duplicated: messages of headlane do not meet others.

    An instance belongs to one thread at a time. A rank that raises while others wait for it has to end
    the job: `python -m mpi4py script.py` does so. After such an exception (KeyboardInterrupt, no memory, a
    message that could not be sent) the instance refuses further calls, since messages of the old one may
    be under way.

    Args:
        comm: A communicator of mpi4py; MPI.COMM_WORLD if None.

    Raises:
        ValueError: Ranks have other versions of headlane, or MPI was initialised with MPI_THREAD_SINGLE,
            while headlane starts threads: on all ranks.
    """

    def __init__(self, comm: Any = None) -> None:
        from mpi4py import MPI

        if comm is None:
            comm = MPI.COMM_WORLD
        if not isinstance(comm, MPI.Intracomm):
            raise TypeError(
                f"Communicator: comm has type {type(comm).__name__}; wanted: mpi4py.MPI.Intracomm"
            )
        self._mpi = MPI
        self._comm = comm.Dup()
        self._requests: dict[int, list[Any]] = {}
        self._tickets = 0
        self._broken = False  # set by headlane._core, too
        try:
            self._compare()
        except Exception:
            self.free()
            raise

    def _compare(self) -> None:
        single = self._mpi.Query_thread() < self._mpi.THREAD_FUNNELED
        self.agree("mpi.Communicator", f"an error, {_SINGLE}" if single else f"headlane {_core.version()}")
        if single:
            raise ValueError(f"mpi.Communicator: {_SINGLE}")

    @property
    def rank(self) -> int:
        """The number of this rank."""
        return self._comm.rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._comm.size

    def agree(self, what: str, mine: str) -> None:
        """Raises ValueError on all ranks, naming them, unless all of them pass the same text."""
        _core.mpi_agree(self, what, mine)

    def free(self) -> None:
        """Frees the duplicate; the communicator is of no use afterwards."""
        self._comm.Free()

    # The methods below are called by headlane._core, with addresses.

    def _pieces(self, address: int, size: int) -> list[Any]:
        memory = self._mpi.memory if hasattr(self._mpi, "memory") else self._mpi.buffer
        first = range(0, max(size, 1), _LARGEST)
        return [memory.fromaddress(address + at, min(size - at, _LARGEST)) for at in first]

    def _check(self) -> None:
        if self._broken:
            raise RuntimeError("mpi.Communicator: a call failed before; its ranks may no longer match")

    def _ticket(self, requests: list[Any]) -> int:
        self._tickets = (self._tickets + 1) % (1 << 31)
        self._requests[self._tickets] = requests
        return self._tickets

    def _start_send(self, to: int, address: int, size: int) -> int:
        self._check()
        byte = self._mpi.BYTE
        return self._ticket([self._comm.Isend([piece, byte], to) for piece in self._pieces(address, size)])

    def _start_receive(self, source: int, address: int, size: int) -> int:
        self._check()
        byte = self._mpi.BYTE
        return self._ticket(
            [self._comm.Irecv([piece, byte], source) for piece in self._pieces(address, size)]
        )

    def _wait(self, ticket: int) -> None:
        self._mpi.Request.Waitall(self._requests.pop(ticket))

    def _progress(self) -> None:
        self._comm.Iprobe(self._mpi.ANY_SOURCE, self._mpi.ANY_TAG)

    def _broadcast(self, address: int, size: int, root: int) -> None:
        self._check()
        for piece in self._pieces(address, size):
            self._comm.Bcast([piece, self._mpi.BYTE], root)

    def _all_gather(self, address: int, begins: Sequence[int]) -> None:
        self._check()
        if 4 * begins[-1] > _LARGEST:
            for rank, (begin, end) in enumerate(zip(begins, begins[1:])):
                self._broadcast(address + 4 * begin, 4 * (end - begin), rank)
            return
        (buffer,) = self._pieces(address, 4 * begins[-1])
        counts = [end - begin for begin, end in zip(begins, begins[1:])]
        self._comm.Allgatherv(self._mpi.IN_PLACE, [buffer, counts, list(begins[:-1]), self._mpi.FLOAT])
