"""Tensors of other types than the weights in the code of a module, and what PyTorch computes of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Callable

import torch

from ._nodes import Mask, Node, NotPlain, Recorded

if TYPE_CHECKING:
    from ._graph import Graph

_ELEMENTWISE = frozenset((torch.log, torch.floor))
_OF_HEADS = (slice(None), None, slice(None), None)  # [batch, length] in [batch, 1, length, 1]
_OF_ROWS = (slice(None), slice(None), None)  # and in [batch, length, 1]


class OtherTensor(Mask):
    """A tensor, and functions of it alone, which a plan computes first.

    dtype: None if it is not known.
    is_of_heads: Whether it is [batch, 1, length, 1], of a tensor [batch, length].
    """

    def __init__(
        self, graph: Graph, node: Node, dtype: torch.dtype | None = None, is_of_heads: bool = False
    ) -> None:
        super().__init__(node)
        self._graph = graph
        self._dtype = dtype
        self._is_of_heads = is_of_heads

    def _computed(
        self, function: Callable[[Any], Any], dtype: torch.dtype | None = None, is_of_heads: bool = False
    ) -> OtherTensor:
        node = self._graph.add(Node("torch", (self.node,), function))
        return OtherTensor(self._graph, node, dtype, is_of_heads or self._is_of_heads)

    def _with_number(self, function: Any, number: Any) -> OtherTensor:
        if type(number) not in (int, float):
            raise NotPlain
        return self._computed(partial(function, other=number))

    def __add__(self, number: Any) -> OtherTensor:
        return self._with_number(torch.add, number)

    def __mul__(self, number: Any) -> OtherTensor:
        return self._with_number(torch.mul, number)

    def __truediv__(self, number: Any) -> OtherTensor:
        return self._with_number(torch.div, number)

    __radd__, __rmul__ = __add__, __mul__

    def __getitem__(self, index: Any) -> Any:
        if index == _OF_ROWS and self.node.kind == "input":
            return RowFactors(self._graph, self.node)
        if self._is_of_heads or index != _OF_HEADS:
            raise NotPlain
        return self._computed(lambda x: x[_OF_HEADS], self._dtype, is_of_heads=True)

    def to(self, dtype: Any) -> OtherTensor:
        if not isinstance(dtype, torch.dtype):
            raise NotPlain
        return self._computed(lambda x: x.to(dtype), dtype)

    def of_positions(self, heads_first: bool, dtype: torch.dtype) -> Node:
        """Factors of heads, as the rows of a table, [batch, length, 1]."""
        if not self._is_of_heads or not heads_first or self._dtype is not dtype:
            raise NotPlain
        return self._computed(lambda x: x.squeeze(1)).node

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> OtherTensor:
        if func not in _ELEMENTWISE or len(args) != 1 or kwargs:
            raise NotPlain
        return args[0]._computed(func)


class RowFactors(Recorded):
    """Integers that a module is given, [batch, length] as [batch, length, 1], such as a mask of padding: they become
    the type of what they multiply.
    """

    def __init__(self, graph: Graph, node: Node) -> None:
        self._graph = graph
        self._node = node

    def of_type(self, dtype: torch.dtype) -> Node:
        def factors(x: torch.Tensor) -> Any:
            is_mask = x.dim() == 2 and not x.is_floating_point() and not x.is_complex()
            return x[_OF_ROWS].to(dtype) if is_mask else NotImplemented

        return self._graph.add(Node("torch", (self._node,), factors))
