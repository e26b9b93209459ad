"""Rotary positions in the code of a module: x * cos + rotate_half(x) * sin, as transformers writes it, of all
numbers of a head or of its first ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ._nodes import Node, NotPlain

if TYPE_CHECKING:
    from ._values import Value


class Width(NamedTuple):
    """How many numbers a table has for a position, or half as many: only a call knows."""

    table: Node
    is_half: bool = False

    def __floordiv__(self, other: Any) -> Width:
        if other != 2 or self.is_half:
            raise NotPlain
        return Width(self.table, True)


def _half(width: int | Width) -> int | Width:
    if type(width) is int and width % 2:
        raise NotPlain
    return width // 2


def last_axis(index: Any) -> slice:
    """The slice in x[..., slice]."""
    if type(index) is not tuple or len(index) != 2 or index[0] is not Ellipsis or type(index[1]) is not slice:
        raise NotPlain
    return index[1]


class Table:
    """The cosines or sines of all positions, [batch, length, rotary_dim], with another axis for the heads."""

    def __init__(self, node: Node, axis: int) -> None:
        self.node = node
        self.axis = axis

    @property
    def shape(self) -> tuple[Any, ...]:
        return None, None, None, Width(self.node)

    def __mul__(self, other: Any) -> Part:
        if not isinstance(other, Part):
            raise NotPlain
        return other * self


class _Piece:
    """What torch.cat joins."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.cat or kwargs != {"dim": -1} or len(args) != 1 or len(args[0]) != 2:
            raise NotPlain
        one, two = args[0]
        if not (isinstance(one, _Piece) and isinstance(two, Part) and one.x is two.x and two.is_plain()):
            raise NotPlain
        return one.followed_by(two)


class Part(_Piece):
    """x[..., begin:end], perhaps negated; or these numbers, or the same with their halves exchanged and the
    first one negated, times a table.
    """

    def __init__(
        self,
        x: Value,
        begin: int | Width,
        end: int | Width,
        negated: bool = False,
        exchanged: bool = False,
        table: Table | None = None,
    ) -> None:
        self.x = x
        self.begin = begin
        self.end = end
        self.negated = negated
        self.exchanged = exchanged
        self.table = table

    def is_plain(self) -> bool:
        return not self.negated and not self.exchanged and self.table is None

    def _require(self, condition: bool) -> None:
        if not condition:
            raise NotPlain

    @property
    def shape(self) -> tuple[Any, ...]:
        self._require(self.begin == 0)
        return None, None, None, self.end

    def __getitem__(self, index: Any) -> Part:
        """[..., :width] or [..., width:]"""
        self._require(self.is_plain() and self.begin == 0)
        bounds = last_axis(index)
        first, last = bounds.start, bounds.stop
        width = last if first is None else first
        self._require((first is None) != (last is None) and bounds.step is None)
        if type(width) is int and type(self.end) is int:
            self._require(0 < width <= self.end)
        else:  # of a table's width its half, and of all numbers the table's
            self._require(isinstance(width, Width) and (type(self.end) is int or width == _half(self.end)))
        return Part(self.x, 0, width) if first is None else Part(self.x, width, self.end)

    def __neg__(self) -> Part:
        self._require(self.is_plain())
        return Part(self.x, self.begin, self.end, negated=True)

    def followed_by(self, other: Part) -> Part:
        """(-second half, first half)"""
        self._require(self.negated and other.begin == 0 and self.begin == other.end == _half(self.end))
        return Part(self.x, 0, self.end, exchanged=True)

    def __mul__(self, table: Any) -> Part:
        self._require(
            isinstance(table, Table) and self.table is None and not self.negated and self.begin == 0
        )
        return Part(self.x, 0, self.end, exchanged=self.exchanged, table=table)

    def __add__(self, other: Any) -> Any:
        self._require(isinstance(other, Part) and self.exchanged != other.exchanged)
        self._require(self.x is other.x and self.end == other.end)
        cosines, sines = (other.table, self.table) if self.exchanged else (self.table, other.table)
        if cosines is None or sines is None:
            raise NotPlain
        turned = Turned(self.x, self.end, cosines, sines)
        return turned.whole() if self.end == self.x.head_dim else turned


class Turned(_Piece):
    """The first numbers of each head, turned."""

    def __init__(self, x: Value, end: int | Width, cosines: Table, sines: Table) -> None:
        self.x = x
        self.end = end
        self.tables = cosines, sines

    def followed_by(self, other: Part) -> Value:
        if (other.begin, other.end) != (self.end, self.x.head_dim):
            raise NotPlain
        return self.whole()

    def whole(self) -> Value:
        if isinstance(self.end, Width):
            if self.end.is_half or all(self.end.table is not x.node for x in self.tables):
                raise NotPlain
            return self.x.rotated(*self.tables, 0)
        return self.x.rotated(*self.tables, self.end)
