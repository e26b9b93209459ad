"""Tables of cosines and sines in the code of a module that is recorded, and sizes that it asks for."""

from __future__ import annotations

from typing import Any

import torch

from ._nodes import Mask, Node, NotPlain, Recorded, Size


class Length(Size):
    """The length of the sequences that a module is given. Code may ask whether there is one token: the plan is for
    calls of which that is as true.
    """

    def __init__(self, graph: Any) -> None:
        self._graph = graph

    def __eq__(self, other: object) -> bool:
        if type(other) is not int or other != 1:
            return super().__eq__(other)
        self._graph.asks_if_single = True
        return bool(self._graph.is_single)

    __hash__ = Size.__hash__

    def __neg__(self) -> Negative:
        return Negative(self)


class Negative(Size):
    """-size"""

    def __init__(self, size: Size) -> None:
        self.size = size


class Width(Size):
    """How many numbers a table has for a position, or half as many."""

    def __init__(self, table: Node, is_half: bool = False) -> None:
        self.table = table
        self.is_half = is_half

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Width) and (self.table, self.is_half) == (other.table, other.is_half):
            return True
        raise NotPlain

    __hash__ = Size.__hash__

    def __floordiv__(self, other: Any) -> Width:
        if other != 2 or self.is_half:
            raise NotPlain
        return Width(self.table, True)


def half(width: int | Width) -> int | Width:
    if type(width) is int and width % 2:
        raise NotPlain
    return width // 2


def last_axis(index: Any, axes: int = 4) -> slice:
    """The slice in x[..., slice], or behind as many `:` as x has other axes."""
    is_last = type(index) is tuple and len(index) > 0 and type(index[-1]) is slice
    if not is_last or not (index[:-1] == (Ellipsis,) or index[:-1] == (slice(None),) * (axes - 1)):
        raise NotPlain
    return index[-1]


class Table(Recorded):
    """The cosines or sines of all positions, [batch, length, rotary_dim], with another axis for the heads.

    is_wide: Whether it is of float32, of values of 16 bits.
    suffix: "_by_pair" if its first half is repeated, a number for each pair, "_by_half" if all of it is.
    """

    def __init__(self, node: Node, axis: int, is_wide: bool, suffix: str = "") -> None:
        self.node = node
        self.axis = axis
        self.is_wide = is_wide
        self.suffix = suffix

    @property
    def shape(self) -> tuple[Any, ...]:
        if self.suffix == "_by_half":
            raise NotPlain
        middle = (1, Size()) if self.axis == 1 else (Size(), 1)
        return Size(), *middle, Width(self.node)

    def __getitem__(self, index: Any) -> HalfTable:
        if self.suffix:
            raise NotPlain
        return HalfTable.of(self.node, index, self.axis, self.is_wide)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Table:
        """As GPT-J repeats one that has a number for each pair."""
        if func is not torch.repeat_interleave or args[1:] != (2, 3) or kwargs or args[0].suffix:
            raise NotPlain
        table = args[0]
        return Table(table.node, table.axis, table.is_wide, "_by_half")

    def __mul__(self, other: Any) -> Any:
        return other * self


class WideMask(Mask):
    """A tensor of float32, [..., ..., ...], of values of 16 bits: a mask, or a table."""

    def unsqueeze(self, axis: int) -> Table:
        if axis not in (1, 2):
            raise NotPlain
        return Table(self.node, axis, is_wide=True)


class HalfTable(Recorded):
    """table[..., : table.shape[-1] // 2], with another axis for the heads unless that is None."""

    def __init__(self, node: Node, axis: int | None, is_wide: bool) -> None:
        self.node = node
        self.axis = axis
        self.is_wide = is_wide

    @classmethod
    def of(cls, node: Node, index: Any, axis: int | None = None, is_wide: bool = False) -> HalfTable:
        if last_axis(index, 3 if axis is None else 4) != slice(Width(node, True)):
            raise NotPlain
        return cls(node, axis, is_wide)

    def unsqueeze(self, axis: int) -> HalfTable:
        if self.axis is not None or axis not in (1, 2):
            raise NotPlain
        return HalfTable(self.node, axis, self.is_wide)

    def repeat_interleave(self, repeats: int, dim: int | None = None) -> Table:
        if (repeats, dim) != (2, -1) or self.axis is None:
            raise NotPlain
        return Table(self.node, self.axis, self.is_wide, "_by_pair")


def axis_and_nodes(
    cosines: Table | HalfTable, sines: Table | HalfTable
) -> tuple[int | None, tuple[Node, Node]]:
    """The axis that two tables have for the heads, and what they are."""
    if cosines.axis != sines.axis:
        raise NotPlain
    return cosines.axis, (cosines.node, sines.node)
