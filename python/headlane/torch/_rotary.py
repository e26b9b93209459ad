"""Rotary positions in the code of a module: x * cos + rotate_half(x) * sin, as transformers writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ._nodes import Node, NotPlain

if TYPE_CHECKING:
    from ._values import Value


class Table:
    """The cosines or sines of all positions, [batch, length, head_dim], with another axis for the heads."""

    def __init__(self, node: Node, axis: int) -> None:
        self.node = node
        self.axis = axis

    def __mul__(self, other: Any) -> Turning:
        if not isinstance(other, Turning):
            raise NotPlain
        return other * self


class Turning:
    """A part of rotary(x): x or its exchanged halves, times a table or not yet; or one half of x, 0 or 1."""

    def __init__(
        self, x: Value, half: int | None = None, negated: bool = False, exchanged: bool = False
    ) -> None:
        self.x = x
        self.half = half
        self.negated = negated
        self.exchanged = exchanged
        self.table: Table | None = None

    @classmethod
    def half_of(cls, x: Value, head_dim: int, index: Any) -> Turning:
        """x[..., : head_dim // 2] or x[..., head_dim // 2 :]"""
        halves = slice(None, head_dim // 2), slice(head_dim // 2, None)
        if (
            head_dim < 2
            or head_dim % 2
            or type(index) is not tuple
            or len(index) != 2
            or index[0] is not Ellipsis
        ):
            raise NotPlain
        if index[1] not in halves:
            raise NotPlain
        return cls(x, halves.index(index[1]))

    def __neg__(self) -> Turning:
        if self.half is None:
            raise NotPlain
        return Turning(self.x, self.half, not self.negated)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Turning:
        """torch.cat((-x[1], x[0]), dim=-1)"""
        if func is not torch.cat or kwargs != {"dim": -1} or len(args) != 1 or len(args[0]) != 2:
            raise NotPlain
        one, two = args[0]
        if not (isinstance(one, Turning) and isinstance(two, Turning) and one.x is two.x):
            raise NotPlain
        if (one.half, one.negated, two.half, two.negated) != (1, True, 0, False):
            raise NotPlain
        return cls(one.x, exchanged=True)

    def __mul__(self, table: Any) -> Turning:
        if not isinstance(table, Table) or self.half is not None or self.table is not None:
            raise NotPlain
        made = Turning(self.x, exchanged=self.exchanged)
        made.table = table
        return made

    def __add__(self, other: Any) -> Value:
        if not isinstance(other, Turning) or self.exchanged == other.exchanged or self.x is not other.x:
            raise NotPlain
        cosines, sines = (other.table, self.table) if self.exchanged else (self.table, other.table)
        if cosines is None or sines is None:
            raise NotPlain
        return self.x.rotated(cosines, sines)
