"""Rotary positions in the code of a module: x * cos + rotate_half(x) * sin, as transformers writes it, of all
numbers of a head or of its first ones. Neighbours are numbers of its two halves, or interleaved: neighbours.
Numbers of 16 bits may be turned in float32, if they are made so, or the tables are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ._complex import Neighbours
from ._nodes import NotPlain, Recorded
from ._rotary_halves import Product
from ._tables import HalfTable, Table, Width, axis_and_nodes, half, last_axis

if TYPE_CHECKING:
    from ._values import Value


class _Piece(Recorded):
    """What torch.cat joins.

    is_wide: Whether it is in float32, of values of 16 bits.
    """

    x: Value
    is_wide: bool

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.cat or kwargs != {"dim": -1} or len(args) != 1 or len(args[0]) != 2:
            raise NotPlain
        one, two = args[0]
        if not (isinstance(one, _Piece) and isinstance(two, Part) and one.x is two.x and two.is_piece()):
            raise NotPlain
        if one.is_wide is not two.is_wide:
            raise NotPlain
        return one.followed_by(two)


class Part(_Piece):
    """x[..., begin:end], perhaps negated; or these numbers, or the same with the two of each pair exchanged and one
    negated, times a table.

    pairs: How those that were exchanged are paired: "halves", "halves_backwards", of which the second one is
        negated, or "neighbours"; "" if none were.
    """

    def __init__(
        self,
        x: Value,
        begin: int | Width,
        end: int | Width,
        negated: bool = False,
        pairs: str = "",
        table: Table | None = None,
        is_wide: bool = False,
    ) -> None:
        self.x = x
        self.begin = begin
        self.end = end
        self.negated = negated
        self.pairs = pairs
        self.table = table
        self.is_wide = is_wide

    def is_plain(self) -> bool:
        return not self.negated and self.is_piece()

    def is_piece(self) -> bool:
        return not self.pairs and self.table is None

    def _require(self, condition: bool) -> None:
        if not condition:
            raise NotPlain

    @property
    def shape(self) -> tuple[Any, ...]:
        self._require(self.begin == 0)
        return (*self.x.shape[:-1], self.end)

    def __getitem__(self, index: Any) -> Part | _EverySecond:
        """[..., :width], [..., width:], [..., ::2] or [..., 1::2]"""
        self._require(self.is_plain() and self.begin == 0)
        bounds = last_axis(index)
        first, last = bounds.start, bounds.stop
        if bounds.step == 2:
            self._require(last is None and (first is None or (type(first) is int and first in (0, 1))))
            return _EverySecond(self, first or 0)
        width = last if first is None else first
        self._require((first is None) != (last is None) and bounds.step is None)
        if type(width) is int and type(self.end) is int:
            self._require(0 < width <= self.end)
        else:  # of a table's width its half, and of all numbers the table's
            self._require(isinstance(width, Width) and (type(self.end) is int or width == half(self.end)))
        begin, end = (0, width) if first is None else (width, self.end)
        return Part(self.x, begin, end, is_wide=self.is_wide)

    def __neg__(self) -> Part:
        self._require(self.is_plain())
        return Part(self.x, self.begin, self.end, negated=True, is_wide=self.is_wide)

    def reshape(self, *sizes: Any) -> Neighbours:
        self._require(self.is_plain() and self.begin == 0 and self.end == self.x.head_dim and self.is_wide)
        return Neighbours.of(self.x, sizes, is_wide=True)

    def float(self) -> Part:
        if self.x.dtype is torch.float32:
            return self
        self._require(self.table is None)
        return Part(self.x, self.begin, self.end, self.negated, self.pairs, is_wide=True)

    def followed_by(self, other: Part) -> Part:
        """(-second half, first half), or (second half, -first half)"""
        self._require(self.is_piece() and self.negated is not other.negated)
        self._require(other.begin == 0 and self.begin == other.end == half(self.end))
        pairs = "halves" if self.negated else "halves_backwards"
        return Part(self.x, 0, self.end, pairs=pairs, is_wide=self.is_wide)

    def __mul__(self, table: Any) -> Part:
        self._require(
            isinstance(table, Table) and self.table is None and not self.negated and self.begin == 0
        )
        return Part(self.x, 0, self.end, False, self.pairs, table, self.is_wide or table.is_wide)

    def _product(self) -> Product | None:
        """If it is half of each head times a table."""
        if self.x.half_of is None or self.table is None or self.pairs or self.is_wide or self.table.suffix:
            return None
        self._require(self.begin == 0 and type(self.end) is int and self.end == self.x.head_dim)
        return Product(*self.x.half_of, self.table, "halves")

    def __sub__(self, other: Any) -> Any:
        one, two = (x._product() if isinstance(x, Part) else None for x in (self, other))
        if one is None or two is None:
            raise NotPlain
        return one - two

    def __add__(self, other: Any) -> Any:
        if isinstance(other, Part) and not self.pairs and not other.pairs:
            one, two = self._product(), other._product()
            if one is not None and two is not None:
                return one + two
        self._require(isinstance(other, Part) and bool(self.pairs) is not bool(other.pairs))
        self._require(self.x is other.x and self.end == other.end and self.is_wide is other.is_wide)
        cosines, sines = (other.table, self.table) if self.pairs else (self.table, other.table)
        if cosines is None or sines is None:
            raise NotPlain
        pairs = self.pairs or other.pairs
        self._require(cosines.suffix == sines.suffix and (pairs == "neighbours" or not sines.suffix))
        pairs += sines.suffix
        turned = Turned(self.x, self.end, cosines, sines, pairs, self.is_wide)
        return turned.whole() if type(self.end) is int and self.end == self.x.head_dim else turned


class _EverySecond(Recorded):
    """x[..., first:end:2], perhaps negated."""

    def __init__(self, part: Part, first: int, negated: bool = False) -> None:
        self.part = part
        self.first = first
        self.negated = negated

    def __neg__(self) -> _EverySecond:
        if self.negated:
            raise NotPlain
        return _EverySecond(self.part, self.first, True)

    def __mul__(self, table: Any) -> Product:
        part = self.part
        is_of_all = type(part.end) is int and part.end == part.x.head_dim and not part.is_wide
        if self.negated or not isinstance(table, HalfTable) or table.is_wide or not is_of_all:
            raise NotPlain
        return Product(part.x, self.first, table, "neighbours")

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> _Stacked:
        """Each pair of neighbours, exchanged, and then the first one negated."""
        if func is not torch.stack or kwargs != {"dim": -1} or len(args) != 1 or len(args[0]) != 2:
            raise NotPlain
        one, two = args[0]
        for x, expected in ((one, (1, True)), (two, (0, False))):
            if not isinstance(x, _EverySecond) or (x.first, x.negated) != expected:
                raise NotPlain
        if one.part.x is not two.part.x or one.part.end != two.part.end:
            raise NotPlain
        if one.part.is_wide is not two.part.is_wide:
            raise NotPlain
        return _Stacked(one.part)


class _Stacked(Recorded):
    """Neighbours, on an axis of their own."""

    def __init__(self, part: Part) -> None:
        self._part = part

    def flatten(self, start: int) -> Part:
        part = self._part
        half(part.end)
        if start != -2:
            raise NotPlain
        return Part(part.x, 0, part.end, pairs="neighbours", is_wide=part.is_wide)


class Turned(_Piece):
    """The first numbers of each head, turned."""

    def __init__(
        self, x: Value, end: int | Width, cosines: Table, sines: Table, pairs: str, is_wide: bool
    ) -> None:
        self.x = x
        self.end = end
        self.pairs = pairs
        self.is_wide = is_wide
        self.tables = cosines, sines

    def followed_by(self, other: Part) -> Value | Wide:
        if not other.is_plain() or (other.begin, other.end) != (self.end, self.x.head_dim):
            raise NotPlain
        return self.whole()

    def whole(self) -> Value | Wide:
        end = self.end
        if isinstance(end, Width):
            if end.is_half or all(end.table is not x.node for x in self.tables):
                raise NotPlain
            end = 0
        made = self.x.rotated(*axis_and_nodes(*self.tables), end, self.pairs, self.is_wide)
        return Wide(made) if self.is_wide else made


class Wide(Recorded):
    """A result in float32, of values of 16 bits, to which it is to be rounded."""

    def __init__(self, value: Value) -> None:
        self._value = value

    def to(self, dtype: Any) -> Value:
        return self._value.to(dtype)
