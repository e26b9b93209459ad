"""KvCache: keys and values of growing sequences, cut over ranks."""

from __future__ import annotations

from typing import Any

from .. import _core
from .._types import CacheDType
from ._communicator import Communicator
from ._sequence_cut import SequenceCut


class KvCache(_core.MpiKvCache):
    """headlane.KvCache over many ranks: each has some blocks of 512 keys of each sequence.

    Every rank calls the same methods in the same order; none of them sends anything,
    attention_over_cache() does. New keys fill the last block where it is. Blocks that one append() adds go
    to the ranks in contiguous runs; if they are fewer than the ranks, each to the rank with the fewest keys
    of the sequence. What one rank alone refuses (no memory; for "int8" a number that is not finite) leaves
    the caches of the others changed: the job has to end.

    Args:
        comm: The ranks.
        kv_heads: As for headlane.KvCache.
        head_dim: As for headlane.KvCache.
        value_dim: As for headlane.KvCache.
        page_size: As for headlane.KvCache, at most 512.
        dtype: As for headlane.KvCache.
    """

    __slots__ = ()

    def __init__(
        self,
        comm: Communicator,
        kv_heads: int,
        head_dim: int,
        value_dim: int | None = None,
        *,
        page_size: int = 128,
        dtype: CacheDType = "float32",
    ) -> None:
        _core.MpiKvCache.__init__(self, comm, kv_heads, head_dim, value_dim, page_size, dtype)

    def add(self) -> int:
        """Adds a sequence without keys and returns its number, the same on all ranks."""
        return _core.MpiKvCache.add(self)

    def fork(self, sequence: int, length: int | None = None) -> int:
        """Adds a sequence of the first keys of another one and returns its number; copies nothing."""
        return _core.MpiKvCache.fork(self, sequence, length)

    def append(self, sequence: int, k: Any, v: Any, cut: SequenceCut | None = None) -> None:
        """Appends keys and values to a sequence.

        Args:
            sequence: Its number.
            k: float32 [kv_heads, tokens, head_dim]: those of all ranks, or with a cut the rank's own.
            v: float32 [kv_heads, tokens, value_dim], likewise.
            cut: How the tokens are cut over the ranks. The length of the sequence must then be a multiple
                of 512.
        """
        _core.MpiKvCache.append(self, sequence, k, v, cut)

    def truncate(self, sequence: int, length: int) -> None:
        """Keeps the first keys of a sequence."""
        _core.MpiKvCache.truncate(self, sequence, length)

    def remove(self, sequence: int) -> None:
        """Removes a sequence; its number may be that of another one later."""
        _core.MpiKvCache.remove(self, sequence)

    def length(self, sequence: int) -> int:
        """The number of keys of a sequence."""
        return _core.MpiKvCache.length(self, sequence)

    def pieces(self, sequence: int) -> tuple[tuple[int, int, int], ...]:
        """Which rank has which keys of a sequence: tuples (rank, begin, end)."""
        return _core.MpiKvCache.pieces(self, sequence)
