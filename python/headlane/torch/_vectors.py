"""Parameters and buffers in the code of a module that is recorded."""

from __future__ import annotations

from typing import Any

import torch

from ._nodes import NotPlain, Recorded


class Weight(Recorded):
    """A parameter or buffer: code may ask for its type and device, but not for numbers, which may change."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.dtype = tensor.dtype
        self.device = tensor.device


class Vector(Weight):
    """One with one axis, which is read in each call: attention may have it, and values may be multiplied by one of
    a single number.
    """

    def __mul__(self, other: Any) -> Any:
        return other * self

    def float(self) -> WideVector:
        return WideVector(self.tensor)

    def __getitem__(self, index: Any) -> Repeated:
        return Repeated.of(self, index)


class WideVector(Recorded):
    """A parameter or buffer in float32, whatever type it has; its exp(); and the negative of that.

    steps: How many of the three there were.
    """

    def __init__(self, tensor: torch.Tensor, steps: int = 1) -> None:
        self.tensor = tensor
        self.steps = steps

    def _after(self, steps: int) -> WideVector:
        if self.steps != steps:
            raise NotPlain
        return WideVector(self.tensor, steps + 1)

    def exp(self) -> WideVector:
        return self._after(1)

    def __neg__(self) -> WideVector:
        return self._after(2)

    def __getitem__(self, index: Any) -> Repeated:
        return Repeated.of(self, index)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> WideVector:
        if func is not torch.exp or len(args) != 1 or kwargs:
            raise NotPlain
        return args[0].exp()


class Repeated(Recorded):
    """Numbers of heads, each repeated for all elements of a head: [..., heads, *sizes].

    of: A Vector, a WideVector, or the Value of the only token of each sequence.
    axes: How many there are behind the heads; sizes: Theirs, once they are expanded.
    """

    def __init__(self, of: Any, axes: int, sizes: tuple[Any, ...] = ()) -> None:
        self.of_heads = of
        self._axes = axes
        self.sizes = sizes

    @classmethod
    def of(cls, vector: Vector | WideVector, index: Any) -> Repeated:
        """[:, None], or [:, None, None]"""
        axes = len(index) - 1 if type(index) is tuple else 0
        if axes < 1 or index[0] != slice(None) or any(x is not None for x in index[1:]):
            raise NotPlain
        return cls(vector, axes)

    def expand(self, *sizes: Any) -> Repeated:
        before, last = sizes[: -self._axes], sizes[-self._axes :]
        if self.sizes or any(x != -1 for x in before) or any(type(x) is not int or x <= 0 for x in last):
            raise NotPlain
        return Repeated(self.of_heads, self._axes, last)
