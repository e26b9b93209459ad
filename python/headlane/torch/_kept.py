"""Attention to keys and values that a model computes from what is in its cache, as in DeepSeek's latent attention:
from all positions for each new token. Here each is computed once, and kept as long as its layer of the cache.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch

from ._attended import layer_of
from ._nodes import Node
from ._operations import Rows, Step, heads_of
from ._state import threads

_INTEGERS = {torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16}


class AttendedKept(NamedTuple):
    """An attention, and the operations that compute its keys and values from their sources."""

    result: Node
    rows: Rows

    @property
    def inputs(self) -> tuple[Node, ...]:
        read = self.result.what.read(self.result.inputs)
        return tuple(x for name, x in read.there().items() if name not in ("key", "value"))

    reads = inputs
    changes_cache = True

    @classmethod
    def is_this(cls, node: Node) -> bool:
        return node.kind == "attention" and node.what.of_sources is not None

    def step(self, at: dict[Node, int]) -> Step:
        call, to = self.result.what, at[self.result]
        places = [at[x] for x in self.result.inputs]
        read = call.read(self.result.inputs)
        sources_read = [(read.key_source, read.value_source).index(x) for x in self.rows.inputs]
        made = [self.rows.outputs.index(x) for x in (read.key, read.value)]

        def step(values: list[Any]) -> Any:
            read = call.read([values[x] for x in places])
            new = [heads_of(x, *of) for x, of in zip((read.key_source, read.value_source), call.of_sources)]
            if not _may_append(read.cache, call.entries[0], new):
                return NotImplemented
            sources = read.cache.update(*new, *call.entries)
            layer = read.cache.layers[call.entries[0]]
            kept = _KEPT.get(layer)
            if kept is None or kept.program is not self.rows.program:
                kept = _KEPT[layer] = Kept(self.rows.program, sources_read, made, call.heads[1:])
            keys, entries = kept.of(sources, new[0].shape[-2])
            query = heads_of(read.query, *call.heads[0])
            values[to] = call(query, keys, entries, read.mask, read.bias).flatten(-2)
            return None

        return step


def _may_append(cache: Any, number: int, new: list[torch.Tensor]) -> bool:
    """Whether a layer of a cache keeps all positions, and has as many keys as values, like the new ones, or none."""
    layer = layer_of(cache, number)
    kind = getattr(cache, "layer_class_to_replicate", None) if layer is None else type(layer)
    if kind not in _ours().ALL_POSITIONS:
        return False
    keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
    if keys is None or keys.numel() == 0:
        return values is None or values.numel() == 0
    is_pair = values is not None and keys.shape[:-1] == values.shape[:-1]
    return is_pair and all(map(_ours().may_append, (keys, values), new))


def _ours() -> Any:
    """The module about caches, which needs transformers: who has a cache of theirs has imported them."""
    return sys.modules["headlane.torch._cache"]


class Kept:
    """Keys and values of the first positions, and copies of what they were computed from.

    read, made: Which of both sources the program reads, and which of its results are keys and values.
    """

    def __init__(self, program: Any, read: list[int], made: list[int], heads: Any) -> None:
        self.program = program
        self._read = read
        self._made = made
        self._heads = heads
        self._buffers: list[Any] = []  # of both sources, keys and values

    def of(self, sources: Any, count: int) -> list[torch.Tensor]:
        """Keys and values for all positions of the sources, of which so many are new."""
        known = self._known(sources, sources[0].shape[-2] - count)
        new = [x.narrow(-2, known, x.shape[-2] - known) for x in sources]
        rows = [x.squeeze(1).contiguous() for x in new]
        made = self.program.run([rows[x] for x in self._read], [], [], [], threads())
        new += [heads_of(made[x], *of) for x, of in zip(self._made, self._heads)]
        buffer = _ours().Buffer
        if not known:
            self._buffers = [buffer(x.narrow(-2, 0, 0), x) for x in new]
        for i, x in enumerate(new):
            mine = self._buffers[i]
            mine.used = known
            if not mine.has_room(x.shape[-2]):
                mine = self._buffers[i] = buffer(mine.held(), x)
            mine.append(x)
        return [x.held() for x in self._buffers[2:]]

    def _known(self, sources: Any, before: int) -> int:
        """How many of the first positions have the bits of those that are kept."""
        if not self._buffers:
            return 0
        length = min(self._buffers[0].used, before)
        for buffer, source in zip(self._buffers, sources):
            one, other = (x.narrow(-2, 0, length) for x in (buffer.memory, source))
            if one.dtype is not other.dtype or one.shape != other.shape:
                return 0
            kind = _INTEGERS[one.dtype]
            if not torch.equal(one.view(kind), other.view(kind)):
                return 0
        return length


_KEPT: WeakKeyDictionary[Any, Kept] = WeakKeyDictionary()
