"""Keys and values that the code of a module computes from what it appends to a cache, of each position by itself:
those of new positions stand for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

import torch

from ._nodes import NotPlain, Recorded
from ._tables import last_axis

if TYPE_CHECKING:
    from ._cached import Entries
    from ._values import Value


class FromCache(Recorded):
    """A value of all positions.

    entries: Of the cache; None if there is none, and all positions are new.
    new: Of the new ones.
    heads: If the only one that `new` has is repeated: how often.
    """

    def __init__(self, entries: Entries | None, new: Value, heads: int = 0) -> None:
        self.entries = entries
        self.new = new
        self.heads = heads

    def map(self, f: Callable[[Value], Value]) -> FromCache:
        if self.heads:
            raise NotPlain
        return FromCache(self.entries, f(self.new))

    @property
    def _length(self) -> Any:
        return self.new.length if self.entries is None else self.entries.length

    @property
    def shape(self) -> tuple[Any, ...]:
        if self.heads or not self.new.head_dim:
            raise NotPlain
        length = self.new.length
        return tuple(self._length if x is length else x for x in self.new.shape)

    def view(self, *sizes: Any) -> FromCache:
        sizes = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], tuple) else sizes
        length = self.new.length
        return self.map(lambda x: x.view(*(length if x is self._length else x for x in sizes)))

    def transpose(self, one: int, two: int) -> FromCache:
        return self.map(lambda x: x.transpose(one, two))

    def split(self, size: Any, dim: int = 0) -> tuple[FromCache, ...]:
        if self.heads:
            raise NotPlain
        return tuple(FromCache(self.entries, x) for x in self.new.split(size, dim))

    def expand(self, *sizes: Any) -> FromCache:
        """[-1, heads, -1, -1] of one head."""
        _, one, *_ = self.shape
        if len(sizes) != 4 or any(sizes[axis] != -1 for axis in (0, 2, 3)) or one != 1:
            raise NotPlain
        if type(sizes[1]) is not int or sizes[1] < 1:
            raise NotPlain
        return FromCache(self.entries, self.new, sizes[1])

    def new_empty(self, *sizes: Any) -> Written:
        batch, _, length, _ = self.shape
        if len(sizes) != 4 or sizes[0] is not batch or sizes[2] is not length:
            raise NotPlain
        return Written(self.entries, sizes[1], sizes[3])

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.split or not isinstance(args[0], FromCache):
            raise NotPlain
        return args[0].split(*args[1:], **(kwargs or {}))


class Written(Recorded):
    """A new tensor, [batch, heads, length, head_dim], of whose heads the first and the last numbers are written."""

    def __init__(self, entries: Entries | None, heads: int, dim: int) -> None:
        self.entries = entries
        self._heads = heads
        self._dim = dim
        self._parts: list[FromCache] = []

    def __getitem__(self, index: Any) -> _Slice:
        bounds = last_axis(index)
        begin, end, step = bounds.indices(self._dim)
        if step != 1 or begin != sum(x.new.head_dim for x in self._parts):
            raise NotPlain
        return _Slice(self, end - begin)

    def add(self, source: Any, dim: int) -> None:
        if (
            not isinstance(source, FromCache)
            or source.entries is not self.entries
            or source.new.head_dim != dim
        ):
            raise NotPlain
        self._parts.append(source)

    @property
    def new(self) -> Value:
        if len(self._parts) != 2:
            raise NotPlain
        one, two = self._parts
        made = one.new.joined(two.new, two.heads > 0)
        is_right = not one.heads and two.heads in (0, self._heads)
        if not is_right or made.shape[1] != self._heads or made.head_dim != self._dim:
            raise NotPlain
        return made


class _Slice(Recorded):
    """Some numbers of all heads of a new tensor."""

    def __init__(self, parts: Written, dim: int) -> None:
        self._parts = parts
        self._dim = dim

    def copy_(self, source: Any) -> None:
        self._parts.add(source, self._dim)


def entries_of(key: Any, value: Any) -> tuple[Entries | None, Value, Value]:
    """What an attention is given: entries of a cache, if there is one, and the keys and values of new positions."""
    if not all(isinstance(x, (FromCache, Written)) for x in (key, value)) or value.entries is not key.entries:
        raise NotPlain
    if any(isinstance(x, FromCache) and x.heads for x in (key, value)):
        raise NotPlain
    if key.entries is not None:
        key.entries.attend()
    return key.entries, key.new, value.new
