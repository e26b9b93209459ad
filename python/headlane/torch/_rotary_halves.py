"""Rotary positions whose results are halves: first * cos - second * sin in front of second * cos + first * sin, with
tables that have a number for each pair. Pairs are neighbours, which become halves, or numbers of the two halves.
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
    pairs: "neighbours" or "halves".
    """

    def __init__(self, x: Value, second: int, table: Any, pairs: str) -> None:
        self.x = x
        self.second = second
        self.table = table
        self.pairs = pairs

    def __sub__(self, other: Any) -> _Half:
        return self._beside(other, 0)

    def __add__(self, other: Any) -> _Half:
        return self._beside(other, 1)

    def _beside(self, other: Any, second: int) -> _Half:
        is_pair = isinstance(other, Product) and other.x is self.x and other.pairs == self.pairs
        if not is_pair or (self.second, other.second) != (second, 1 - second):
            raise NotPlain
        return _Half(self.x, second, self.table, other.table, self.pairs)


class _Half(Recorded):
    """The first or second numbers of all pairs, turned."""

    def __init__(self, x: Value, second: int, cosines: Any, sines: Any, pairs: str) -> None:
        self.x = x
        self.second = second
        self.tables = cosines, sines
        self.pairs = pairs

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.cat or kwargs != {"dim": -1} or len(args) != 1 or len(args[0]) != 2:
            raise NotPlain
        one, two = args[0]
        if not (isinstance(one, _Half) and isinstance(two, _Half) and one.x is two.x):
            raise NotPlain
        if (one.second, two.second, one.pairs) != (0, 1, two.pairs) or one.tables != two.tables:
            raise NotPlain
        x, (axis, tables) = one.x, axis_and_nodes(*one.tables)
        if one.pairs == "neighbours":
            return x.rotated(axis, tables, x.head_dim, "neighbours_to_halves", False)
        cosines, sines = (x.graph.once("torch", node, _repeated) for node in tables)
        return x.rotated(axis, (cosines, sines), x.head_dim, "halves", False)


def _repeated(table: torch.Tensor) -> torch.Tensor:
    return torch.cat((table, table), -1)
