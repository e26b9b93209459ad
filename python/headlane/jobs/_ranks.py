"""The processes of a job: the ranks of MPI, or this process alone.

MPI is imported only where a launcher started the process, which its environment tells: mpirun and
srun set the variables in LAUNCHED.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any, Callable, TypeVar

import numpy as np

T = TypeVar("T")

# Variables with the number of processes: of Open MPI, of MPICH, Intel MPI and Slurm (PMI), MVAPICH.
LAUNCHED = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")
# And with the rank, which is all that PMIx has (PRRTE, srun --mpi=pmix).
LAUNCHED_RANK = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
POLL_SECONDS = 0.01
PATIENCE = 1.0  # seconds that a rank which fails waits for MPI
# The shared counters: pieces handed out, lines finished, ranks that failed.
PIECES, LINES, FAILED = 0, 1, 2


class Stop(Exception):
    """Ends the job with one message: every rank raises it with the same text."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


def reason(error: BaseException) -> str:
    """An exception as a line of text."""
    text = " ".join(str(error).split())
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror + (f": {error.filename}" if error.filename else "")
    if isinstance(error, (OSError, ValueError, RuntimeError, ImportError, Stop)) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def rank_list(ranks: Sequence[int]) -> str:
    """ "rank 3", or "ranks 0, 1, 2, 3 and 60 more"."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    more = f" and {len(ranks) - 4} more" if len(ranks) > 4 else ""
    return f"ranks {', '.join(map(str, ranks[:4]))}{more}"


class Ranks:
    """A process alone, and what the ranks of MPI have in common with it."""

    rank = 0
    size = 1
    local = 1  # ranks on this machine
    resumable = False  # whether --resume goes on with what is written

    def __init__(self) -> None:
        self.host = socket.gethostname()
        self._counts = [0, 0, 0]

    def allgather(self, value: T, waiting: Callable[[], None] | None = None) -> list[T]:
        """The value of each rank. While it waits, signals are noticed, and `waiting` is called."""
        return [value]

    def share(self, value: T) -> T:
        """The value of rank 0."""
        return self.allgather(value if self.rank == 0 else None)[0]  # type: ignore[return-value]

    def add(self, slot: int, amount: int) -> int:
        """Adds to one of the shared counters, and returns what it was; no rank takes part but this."""
        before = self._counts[slot]
        self._counts[slot] += amount
        return before

    def local_cpus(self) -> tuple[set[int], bool]:
        """The processors of this machine's ranks, and whether two ranks have one in common."""
        return set(os.sched_getaffinity(0)), False

    def fail(self) -> None:
        """Lets rank 0 know that this rank says why all end."""

    def failed(self) -> bool:
        """On rank 0: whether another rank does."""
        return False

    def abort(self, status: int) -> None:
        """Ends all ranks."""
        raise SystemExit(status)

    def close(self) -> None:
        """Frees what the counters took; all ranks together."""

    # ---- Built from these

    def together(self, function: Callable[[], T], only_first: bool = False) -> T:
        """The function's result; if it fails on a rank, all ranks stop with one message.

        Args:
            function: What each rank computes.
            only_first: Rank 0 computes for all.
        """
        result, error, status = None, None, 1
        try:
            if self.rank == 0 or not only_first:
                result = function()
        except Exception as caught:
            error, status = reason(caught), getattr(caught, "status", 1)
        found = self.allgather((error, status))
        failed = [r for r, (text, _) in enumerate(found) if text is not None]
        if failed:
            raise Stop(self._which(found, failed, only_first), found[failed[0]][1])
        return self.share(result) if only_first else result  # type: ignore[return-value]

    def _which(self, found: list[tuple[str | None, int]], failed: list[int], only_first: bool) -> str:
        texts = {text: [r for r in failed if found[r][0] == text] for text, _ in found if text is not None}
        if only_first or (len(texts) == 1 and len(failed) == self.size):
            return next(iter(texts))
        shown = [f"{rank_list(which)}: {text}" for text, which in list(texts.items())[:4]]
        return "; ".join(shown) + (f"; and {len(texts) - 4} other reasons" if len(texts) > 4 else "")

    def same(self, what: str, value: dict[str, Any]) -> None:
        """Stops unless each member is the same on all ranks; the message names ranks and values."""
        values = self.allgather(value)
        lines = []
        for key in dict.fromkeys(key for one in values for key in one):
            held: dict[str, list[int]] = {}
            for r, one in enumerate(values):
                held.setdefault(repr(one.get(key, "none")), []).append(r)
            if len(held) > 1:
                each = "; ".join(f"{text} on {rank_list(which)}" for text, which in held.items())
                lines.append(f"{key}: {each}")
        if lines:
            raise Stop(f"ranks differ in {what}: " + "; ".join(lines))


class MpiRanks(Ranks):
    """The ranks of MPI.COMM_WORLD, with counters in a window of rank 0."""

    def __init__(self, mpi: Any) -> None:
        super().__init__()
        self._mpi = mpi
        self._world = mpi.COMM_WORLD
        self.rank, self.size = self._world.rank, self._world.size
        self._machine = self._world.Split_type(mpi.COMM_TYPE_SHARED)
        self.local = self._machine.size
        self._window = mpi.Win.Allocate(24 if self.rank == 0 else 0, 8, comm=self._world)
        self._memory = np.frombuffer(self._window.tomemory(), np.int64)  # empty on other ranks
        self._memory[:] = 0
        self._world.Barrier()
        self._window.Lock_all()
        self._inside = threading.Lock()  # one thread at a time is in MPI
        self._stop = threading.Event()
        self._helper: threading.Thread | None = None
        if self.rank == 0 and self.size > 1 and mpi.Query_thread() >= mpi.THREAD_SERIALIZED:
            self._helper = threading.Thread(target=self._make_progress, daemon=True)
            self._helper.start()

    def _make_progress(self) -> None:
        """Some networks serve a window only while its rank is in MPI, and rank 0 computes, too."""
        while not self._stop.wait(POLL_SECONDS / 2):
            with self._inside:
                self._world.Iprobe()

    def _wait(self, waiting: Callable[[], None] | None = None) -> None:
        """A barrier that sleeps: MPI's own would keep a processor busy, and hold back signals."""
        with self._inside:
            request = self._world.Ibarrier()
        while True:
            with self._inside:
                if request.Test():
                    return
            time.sleep(POLL_SECONDS)
            if waiting is not None:
                waiting()

    def allgather(self, value: T, waiting: Callable[[], None] | None = None) -> list[T]:
        self._wait(waiting)
        with self._inside:
            return self._world.allgather(value)

    def add(self, slot: int, amount: int) -> int:
        given, got = np.array([amount], np.int64), np.zeros(1, np.int64)
        kind = self._mpi.INT64_T
        with self._inside:
            self._window.Fetch_and_op([given, kind], [got, kind], 0, slot, self._mpi.SUM)
            self._window.Flush(0)
        return int(got[0])

    def local_cpus(self) -> tuple[set[int], bool]:
        with self._inside:
            each = self._machine.allgather(set(os.sched_getaffinity(0)))
        union = set().union(*each)
        return union, sum(map(len, each)) > len(union)

    def fail(self) -> None:
        """Waits a second at most, as MPI itself may be what failed; in this thread, as MPI may allow no other."""
        end = time.monotonic() + PATIENCE
        if not self._inside.acquire(timeout=PATIENCE):
            return
        try:
            given, got, kind = np.array([1], np.int64), np.zeros(1, np.int64), self._mpi.INT64_T
            request = self._window.Rget_accumulate(
                [given, kind], [got, kind], 0, (FAILED, 1, kind), self._mpi.SUM
            )
            while not request.Test() and time.monotonic() < end:
                time.sleep(POLL_SECONDS)
        finally:
            self._inside.release()

    def failed(self) -> bool:
        return self.rank == 0 and bool(self._memory[FAILED])

    def abort(self, status: int) -> None:
        self._inside.acquire(timeout=PATIENCE)  # the other thread may be in MPI for ever
        self._world.Abort(status)

    def close(self) -> None:
        self._stop.set()
        if self._helper is not None:
            self._helper.join()
        self._wait()
        self._window.Unlock_all()
        self._window.Free()
        self._machine.Free()


def launched() -> bool:
    """Whether mpirun or srun started this process, rather than a user's shell."""
    return any(name in os.environ for name in (*LAUNCHED, *LAUNCHED_RANK))


def connect(mode: str = "auto") -> Ranks:
    """The ranks that this process belongs to.

    Args:
        mode: "auto": MPI where a launcher started this process; "on" and "off" decide.

    Raises:
        Stop: MPI is wanted and cannot be imported.
    """
    if mode == "off" or (mode == "auto" and not launched()):
        return Ranks()
    try:
        import mpi4py

        mpi4py.rc.thread_level = "serialized"  # windows over TCP in Open MPI 4 do not go with "multiple"
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        if mode == "auto" and any(os.environ.get(name) == "1" for name in LAUNCHED):
            return Ranks()
        raise Stop(
            f"started by mpirun, and MPI cannot be used: {reason(error)}: pip install 'headlane[mpi]'"
        ) from None
    return MpiRanks(MPI)
