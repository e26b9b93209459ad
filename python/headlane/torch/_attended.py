"""Attention among operations on rows, and what a run is given for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ._nodes import Attention, Node, Read

if TYPE_CHECKING:
    from ._operations import Rows


def layer_of(cache: Any, number: Any) -> Any:
    """None if the cache does not have it. Of a dict of keys and values a layer type is given."""
    if isinstance(number, str):
        return SimpleNamespace(**dict(zip(("keys", "values"), cache.get(number, ()))))
    layers = cache.layers
    return layers[number] if number < len(layers) else None


class Keys(NamedTuple):
    """What an attention among operations on rows is given: its options, a mask, a bias, and a layer of a cache."""

    call: Attention
    read: Read

    def placed(self, at: dict[Node, int]) -> Keys:
        """With the numbers of nodes in place of the nodes."""
        return self._replace(read=Read(**{name: at[x] for name, x in self.read.there().items()}))

    def _memory(self, values: list[Any], length: int, claimed: list[Any]) -> tuple[Any, Any, int] | None:
        """Keys and values of the cache, and how many there are; None if they do not fit."""
        layer = layer_of(values[self.read.cache], self.call.entries[0])
        if self.call.changes_cache:
            claim = getattr(layer, "claim", None)
            memory = claim and claim(length)
            if memory is not None:
                claimed.append((self, layer))
            return memory
        keys, entries = getattr(layer, "keys", None), getattr(layer, "values", None)
        for x in (keys, entries):
            if type(x) is not torch.Tensor or x.dim() != 4 or (x.requires_grad and torch.is_grad_enabled()):
                return None
        return keys, entries, keys.shape[2]

    def share(self, values: list[Any], layer: Any) -> None:
        """Gives all keys and values of a layer that was claimed, with the new ones, to a dict, if the code does."""
        if self.call.shared_as is not None:
            values[self.read.shared][self.call.shared_as] = layer.claimed()

    def given(self, values: list[Any], length: int, claimed: list[Any]) -> tuple[Any, ...] | None:
        """Mask, whether it is causal, scale, other options and the memory of the cache; None if it does not fit. A
        layer of the cache that gets so many new keys is added, with this, to those that are claimed.
        """
        memory, kv_length = None, length
        if self.read.cache is not None:
            memory = self._memory(values, length, claimed)
            if memory is None:
                return None
            kv_length = memory[2] + (length if self.call.changes_cache else 0)
        mask, bias = (None if x is None else values[x] for x in (self.read.mask, self.read.bias))
        return *self.call.options_of(mask, bias, length, kv_length), memory


class Attended(NamedTuple):
    """Attention to keys of the same sequence."""

    result: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        read = self._read
        return tuple(x for x in (read.query, read.key, read.value) if x is not None)

    @property
    def _read(self) -> Read:
        return self.result.what.read(self.result.inputs)

    @classmethod
    def is_this(cls, node: Node) -> bool:
        """Whether a call is of rows of the same sequences, and makes no tensors before its attention."""
        return cls(node)._is_of_rows() and node.what.is_of_whole_rows()

    def _is_of_rows(self) -> bool:
        sizes = self.inputs[0].sizes
        if sizes is None or any(x.sizes is not sizes for x in self.inputs):
            return False
        return self.result.what.is_plain() and all(x.kind in ("input", "torch") for x in self._read.beside())

    def add_to(self, rows: Rows) -> int:
        call, read = self.result.what, self._read
        rows.attentions.append(Keys(call, read))
        heads = read.query.width // call.heads[0][1]
        return rows.program.attention(*(rows.at[x] for x in self.inputs), heads)


class AttendedCache(Attended):
    """Attention to the keys of a cache, to which those of the same sequences may be appended: by
    attention_with_cache(), which needs room for them.
    """

    @classmethod
    def is_this(cls, node: Node) -> bool:
        call, one = node.what, cls(node)
        if call.entries is None or len(call.entries) != 1 or call.of_sources or not one._is_of_rows():
            return False
        (query_dim, key_dim), heads = (x[1] for x in call.heads[:2]), one._heads()
        return query_dim == key_dim and heads[1] == heads[2] and heads[0] % heads[1] == 0

    def _heads(self) -> list[int]:
        """How many queries, keys and values have."""
        read, found = self._read, []
        for node, (columns, dim) in zip(read[:3], self.result.what.heads):
            width = (node or read.query).width if columns is None else columns[1] - columns[0]
            found.append(width // dim)
        return found

    def add_to(self, rows: Rows) -> int:
        call, read = self.result.what, self._read
        rows.attentions.append(Keys(call, read))
        columns = tuple(0 if x is None else x[0] for x, _ in call.heads)
        heads, kv_heads, _ = self._heads()
        (_, dim), _, (_, value_dim) = call.heads
        places = (-1 if x is None else rows.at[x] for x in read[:3])
        return rows.program.attention_with_cache(*places, columns, heads, kv_heads, dim, value_dim)
