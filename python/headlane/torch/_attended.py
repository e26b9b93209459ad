"""Attention among operations on rows, and what a run is given for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from ._nodes import Node

if TYPE_CHECKING:
    from ._operations import Rows


class Keys(NamedTuple):
    """What an attention among operations on rows is given: its options, a mask, and a layer of a cache."""

    options: Callable[..., Any]
    mask: Any = None
    cache: Any = None
    layer: int = 0

    def placed(self, at: dict[Node, int]) -> Keys:
        """With the numbers of nodes in place of the nodes."""
        mask, cache = (None if x is None else at[x] for x in (self.mask, self.cache))
        return self._replace(mask=mask, cache=cache)

    def layer_of(self, values: list[Any]) -> Any:
        layers = values[self.cache].layers
        return layers[self.layer] if self.layer < len(layers) else None

    def given(self, values: list[Any], length: int) -> tuple[Any, ...] | None:
        """Mask, whether it is causal, scale, other options and the memory of the cache; None if it has no room."""
        memory = None
        if self.cache is not None:
            claim = getattr(self.layer_of(values), "claim", None)
            memory = claim and claim(length)
            if memory is None:
                return None
        mask = None if self.mask is None else values[self.mask]
        return *self.options(mask, length, length + (memory[2] if memory else 0)), memory

    def end(self, values: list[Any], length: int, was_written: bool) -> None:
        """After the run that was given this."""
        if self.cache is not None:
            layer = self.layer_of(values)
            if was_written:
                layer.take(length)
            else:
                layer.release(length)


class Attended(NamedTuple):
    """Attention to keys of the same sequence."""

    result: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.result.inputs[:3]

    @classmethod
    def is_this(cls, node: Node) -> bool:
        """Whether a call is of rows of the same sequences, and makes no tensors before its attention."""
        return cls._is_of_rows(node) and node.what.is_of_whole_rows()

    @staticmethod
    def _is_of_rows(node: Node) -> bool:
        sizes = node.inputs[0].sizes
        return sizes is not None and all(x.sizes is sizes for x in node.inputs[:3]) and node.what.is_plain()

    def add_to(self, rows: Rows) -> int:
        call, (q, k, v, *mask) = self.result.what, self.result.inputs
        rows.attentions.append(Keys(call.options_of, mask[0] if mask else None))
        heads = self.inputs[0].width // call.heads[0][1]
        return rows.program.attention(rows.at[q], rows.at[k], rows.at[v], heads)


class AttendedCache(Attended):
    """Attention to the keys of a cache, to which those of the same sequences are appended: by
    attention_with_cache(), which needs room for them.
    """

    @classmethod
    def is_this(cls, node: Node) -> bool:
        call = node.what
        if not cls._is_of_rows(node) or call.update is None or len(call.update) != 1:
            return False
        (query_dim, key_dim), heads = (x[1] for x in call.heads[:2]), cls._heads(node)
        return query_dim == key_dim and heads[1] == heads[2] and heads[0] % heads[1] == 0

    @staticmethod
    def _heads(node: Node) -> list[int]:
        """How many queries, keys and values have."""
        widths = [
            x.width if columns is None else columns[1] - columns[0]
            for x, (columns, _) in zip(node.inputs, node.what.heads)
        ]
        return [width // dim for width, (_, dim) in zip(widths, node.what.heads)]

    def add_to(self, rows: Rows) -> int:
        call, (q, k, v, cache, *mask) = self.result.what, self.result.inputs
        rows.attentions.append(Keys(call.options_of, mask[0] if mask else None, cache, call.update[0]))
        columns = tuple(0 if x is None else x[0] for x, _ in call.heads)
        heads, kv_heads, _ = self._heads(self.result)
        (_, dim), _, (_, value_dim) = call.heads
        places = rows.at[q], rows.at[k], rows.at[v]
        return rows.program.attention_with_cache(*places, columns, heads, kv_heads, dim, value_dim)
