"""KvCache: keys and values that grow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from . import _core


def _restored(
    sizes: tuple[int, int, int, int, int],
    free: list[int],
    sequences: list[tuple[int, int, int, np.ndarray, np.ndarray]],
) -> KvCache:
    """A cache of what state() gave: sequences under the same numbers, sharing the same pages."""
    kv_heads, head_dim, value_dim, page_size, max_pages = sizes
    cache = KvCache(kv_heads, head_dim, value_dim, page_size=page_size, max_pages=max_pages)
    numbers = [number for number, *_ in sequences] + free
    for _ in numbers:
        cache.add()
    for number in reversed(numbers):  # the one that was removed last is given first
        cache.remove(number)
    for _, source, shared, k, v in sequences:
        made = cache.add() if source < 0 else cache.fork(source, shared)
        cache.append(made, k, v)
    return cache


class KvCache(_core.KvCache):
    """Keys and values of any number of sequences, which grow by some tokens at a time, in the order in which attention reads them.

    kv_heads, head_dim: of the keys; value_dim: of the values, head_dim if None. Both dims are 1 to 512.
    page_size: keys of a page: 32, 64, 128, 256 or a multiple of 512. Short pages waste less at the end of a sequence.
    max_pages: that it may hold at a time; 0: as many as memory has.

    A sequence is named by the number that add() or fork() gave, which is used again after remove(). Sequences that were forked
    share pages until one of them is appended to. A call that raises leaves the cache as it was. Any number of threads may use it.
    A copy of it, and one from a pickle, has the same sequences under the same numbers, sharing pages likewise.
    """

    __slots__ = ()

    def __init__(
        self,
        kv_heads: int,
        head_dim: int,
        value_dim: int | None = None,
        *,
        page_size: int = 128,
        max_pages: int = 0,
    ) -> None:
        _core.KvCache.__init__(self, kv_heads, head_dim, value_dim, page_size, max_pages)

    def add(self) -> int:
        """A new sequence without keys; gives its number."""
        return _core.KvCache.add(self)

    def fork(self, sequence: int, length: int | None = None) -> int:
        """A new sequence of the first `length` keys of another one, all of them if None; copies nothing."""
        return _core.KvCache.fork(self, sequence, length)

    def append(self, sequence: int | Iterable[int], k: Any, v: Any) -> None:
        """Copies keys k [kv_heads, tokens, head_dim] and values v [kv_heads, tokens, value_dim] to the end of a sequence.

        Both are float32, with any strides. For several sequences, each named once, both have one more axis in front. Raises
        ValueError if max_pages would be exceeded.
        """
        _core.KvCache.append(self, sequence, k, v)

    def truncate(self, sequence: int, length: int) -> None:
        """Keeps the first `length` keys."""
        _core.KvCache.truncate(self, sequence, length)

    def remove(self, sequence: int) -> None:
        """Forgets a sequence; pages that no other one shares are free again."""
        _core.KvCache.remove(self, sequence)

    def length(self, sequence: int) -> int:
        """Keys of a sequence."""
        return _core.KvCache.length(self, sequence)

    @property
    def pages_in_use(self) -> int:
        """Pages that sequences hold, each counted once however many share it."""
        return _core.KvCache.pages_in_use.__get__(self)

    @property
    def page_nbytes(self) -> int:
        """The memory of one page."""
        return _core.KvCache.page_nbytes.__get__(self)

    @property
    def nbytes(self) -> int:
        """The memory that it holds, free pages that are kept for later included."""
        return _core.KvCache.nbytes.__get__(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, _core.KvCache.state(self)

    def __repr__(self) -> str:
        return (
            f"KvCache(kv_heads={self.kv_heads}, head_dim={self.head_dim}, value_dim={self.value_dim}, "
            f"page_size={self.page_size}, pages_in_use={self.pages_in_use})"
        )
