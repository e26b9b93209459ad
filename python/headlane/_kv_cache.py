"""KvCache: keys and values of growing sequences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from . import _core
from ._types import CacheDType


def _restored(
    sizes: tuple[int, int, int, int, int],
    free: list[int],
    sequences: list[tuple[int, int, int, np.ndarray, np.ndarray]],
    dtype: CacheDType = "float32",  # pickles of 0.4.0 have none
) -> KvCache:
    """Unpickles a cache: sequences with the same numbers, which share the same pages."""
    kv_heads, head_dim, value_dim, page_size, max_pages = sizes
    cache = KvCache(kv_heads, head_dim, value_dim, page_size=page_size, max_pages=max_pages, dtype=dtype)
    numbers = [number for number, *_ in sequences] + free
    for _ in numbers:
        cache.add()
    for number in reversed(numbers):  # the number that was removed last is reused first
        cache.remove(number)
    for _, source, shared, k, v in sequences:
        made = cache.add() if source < 0 else cache.fork(source, shared)
        cache.append(made, k, v)
    return cache


class KvCache(_core.KvCache):
    """Keys and values of any number of growing sequences, stored in the order in which attention reads them.

    add() and fork() return the number of a sequence; remove() makes it free for another one. Forked
    sequences share pages until one of them is appended to. A call that raises leaves the cache unchanged.
    Any number of threads may use a cache, first come, first served. Copies, and caches from a pickle,
    have the same sequences with the same numbers, and share pages likewise.

    With dtype "bfloat16" or "float16" it takes half the memory, with "int8" little more than a quarter:
    then each key and each value, of each kv head, has a scale, max(abs(key)) / 127, rounded to 16 bits.
    Elements are rounded to nearest when they are appended; attention is bit-identical to attention over a
    float32 cache of the rounded ones. How a token is stored depends on nothing but the token.

    Args:
        kv_heads: The number of heads of keys and values.
        head_dim: The length of a key, 1 to 512.
        value_dim: The length of a value, 1 to 512; head_dim if None.
        page_size: Keys of a page: 32, 64, 128, 256 or a multiple of 512. Short pages waste less memory at
            the end of a sequence.
        max_pages: The maximum number of pages; 0: unbounded.
        dtype: How keys and values are stored: "float32", "bfloat16", "float16" or "int8".
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
        dtype: CacheDType = "float32",
    ) -> None:
        _core.KvCache.__init__(self, kv_heads, head_dim, value_dim, page_size, max_pages, dtype)

    def add(self) -> int:
        """Adds a sequence without keys and returns its number."""
        return _core.KvCache.add(self)

    def fork(self, sequence: int, length: int | None = None) -> int:
        """Adds a sequence of the first keys of another one and returns its number; copies nothing.

        Args:
            sequence: The number of the other sequence.
            length: The number of keys; all if None.
        """
        return _core.KvCache.fork(self, sequence, length)

    def append(self, sequence: int | Iterable[int], k: Any, v: Any) -> None:
        """Appends copies of keys and values to a sequence, or to several.

        Args:
            sequence: The number of a sequence, or the numbers of several, each once.
            k: float32, bfloat16 or float16 [kv_heads, tokens, head_dim], any strides; for several
                sequences [sequences, kv_heads, tokens, head_dim].
            v: Values [kv_heads, tokens, value_dim], likewise.

        Raises:
            ValueError: max_pages would be exceeded, or dtype is "int8" and a number is not finite.
        """
        _core.KvCache.append(self, sequence, k, v)

    def read(self, sequence: int) -> tuple[Any, Any]:
        """Copies of the keys and values of a sequence, as they were appended or as they were rounded.

        Args:
            sequence: The number of the sequence.

        Returns:
            NumPy arrays of float32: keys [kv_heads, length, head_dim], values [kv_heads, length, value_dim].
        """
        return _core.KvCache.read(self, sequence)

    def truncate(self, sequence: int, length: int) -> None:
        """Keeps the first `length` keys of a sequence."""
        _core.KvCache.truncate(self, sequence, length)

    def remove(self, sequence: int) -> None:
        """Removes a sequence; pages that no other sequence shares become free."""
        _core.KvCache.remove(self, sequence)

    def length(self, sequence: int) -> int:
        """The number of keys of a sequence."""
        return _core.KvCache.length(self, sequence)

    @property
    def dtype(self) -> CacheDType:
        """How keys and values are stored."""
        return _core.KvCache.dtype.__get__(self)

    @property
    def pages_in_use(self) -> int:
        """The number of pages that sequences hold; a shared page counts once."""
        return _core.KvCache.pages_in_use.__get__(self)

    @property
    def page_nbytes(self) -> int:
        """The memory of one page, in bytes."""
        return _core.KvCache.page_nbytes.__get__(self)

    @property
    def nbytes(self) -> int:
        """The memory of all pages, in bytes, including free ones that are kept for later."""
        return _core.KvCache.nbytes.__get__(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, _core.KvCache.state(self)

    def __repr__(self) -> str:
        return (
            f"KvCache(kv_heads={self.kv_heads}, head_dim={self.head_dim}, value_dim={self.value_dim}, "
            f"page_size={self.page_size}, dtype={self.dtype!r}, pages_in_use={self.pages_in_use})"
        )
