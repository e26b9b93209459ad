"""Rotary positions whose pairs are neighbours, and become halves: first * cos - second * sin in front of
second * cos + first * sin, with tables that have a number for each pair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ._nodes import NotPlain, Recorded
from ._tables import axis_and_nodes

if TYPE_CHECKING:
    from ._values import Value


class Product(Recorded):
    """The first or second numbers of all pairs of a head, times a table.

    second: Which: 0 or 1.
    """

    def __init__(self, x: Value, second: int, table: Any) -> None:
        self.x = x
        self.second = second
        self.table = table

    def __sub__(self, other: Any) -> _Half:
        return self._beside(other, 0)

    def __add__(self, other: Any) -> _Half:
        return self._beside(other, 1)

    def _beside(self, other: Any, second: int) -> _Half:
        is_pair = isinstance(other, Product) and other.x is self.x
        if not is_pair or (self.second, other.second) != (second, 1 - second):
            raise NotPlain
        return _Half(self.x, second, self.table, other.table)


class _Half(Recorded):
    """The first or second numbers of all pairs, turned."""

    def __init__(self, x: Value, second: int, cosines: Any, sines: Any) -> None:
        self.x = x
        self.second = second
        self.tables = cosines, sines

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Value:
        if func is not torch.cat or kwargs != {"dim": -1} or len(args) != 1 or len(args[0]) != 2:
            raise NotPlain
        one, two = args[0]
        if not (isinstance(one, _Half) and isinstance(two, _Half) and one.x is two.x):
            raise NotPlain
        if (one.second, two.second) != (0, 1) or one.tables != two.tables:
            raise NotPlain
        return one.x.rotated(*axis_and_nodes(*one.tables), one.x.head_dim, "neighbours_to_halves", False)
