"""Rotary positions as products of complex numbers, of which neighbours of a head are the parts, as DeepSeek-V2
writes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ._nodes import Mask, Node, NotPlain, Recorded

if TYPE_CHECKING:
    from ._graph import Graph
    from ._values import Value

_WITH_HEADS = (slice(None), slice(None), None, slice(None))


class Angles(Mask):
    """A table of complex numbers, [batch, length, rotary_dim / 2], perhaps with another axis for the heads."""

    def __init__(self, graph: Graph, node: Node, axis: int | None = None) -> None:
        super().__init__(node)
        self.axis = axis
        self._graph = graph

    def unsqueeze(self, axis: int) -> Angles:
        if self.axis is not None or axis not in (1, 2):
            raise NotPlain
        return Angles(self._graph, self.node, axis)

    def __getitem__(self, index: Any) -> Angles:
        """[:, :, None, :]"""
        if index != _WITH_HEADS:
            raise NotPlain
        return self.unsqueeze(2)

    def to(self, device: Any) -> Angles:
        if device != torch.device("cpu"):
            raise NotPlain
        return self

    def tables(self) -> tuple[Node, Node]:
        return self._graph.once("torch", self.node, _cosines), self._graph.once("torch", self.node, _sines)


def _cosines(x: torch.Tensor) -> torch.Tensor:
    return x.real.contiguous()


def _sines(x: torch.Tensor) -> torch.Tensor:
    return x.imag.contiguous()


class Neighbours(Recorded):
    """Each head as pairs of neighbours, [..., head_dim / 2, 2].

    angles: By which they are turned, if they are.
    """

    def __init__(self, x: Value, is_wide: bool, angles: Angles | None = None) -> None:
        self._x = x
        self._is_wide = is_wide
        self._angles = angles

    @classmethod
    def of(cls, x: Value, sizes: tuple[Any, ...], is_wide: bool = False) -> Neighbours:
        if x.head_dim % 2 or sizes[-2:] != (-1, 2) or sizes[:-2] != x.shape[:-1]:
            raise NotPlain
        return cls(x, is_wide)

    def flatten(self, start: int) -> Neighbours:
        if start != 3 or self._angles is None:
            raise NotPlain
        return self

    def type_as(self, x: Value) -> Value:
        made, angles = self._x, self._angles
        if angles is None or x.dtype is not made.dtype:
            raise NotPlain
        return made.rotated(angles.axis, angles.tables(), made.head_dim, "neighbours_by_half", self._is_wide)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Complex:
        if func is not torch.view_as_complex or kwargs or args[0]._angles is not None:
            raise NotPlain
        return Complex(args[0]._x, args[0]._is_wide)


class Complex(Recorded):
    """The same as complex numbers."""

    device = torch.device("cpu")

    def __init__(self, x: Value, is_wide: bool, angles: Angles | None = None) -> None:
        self._x = x
        self._is_wide = is_wide
        self._angles = angles

    def __mul__(self, angles: Any) -> Complex:
        if self._angles is not None or not isinstance(angles, Angles):
            raise NotPlain
        return Complex(self._x, self._is_wide, angles)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Neighbours:
        if func is not torch.view_as_real or kwargs or args[0]._angles is None:
            raise NotPlain
        return Neighbours(args[0]._x, args[0]._is_wide, args[0]._angles)
