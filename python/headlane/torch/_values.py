"""Tensors that are not there yet: the code of a module is run with them, and they record what it does."""

from __future__ import annotations

from typing import Any

import torch

from ._delta import Gate
from ._functions import called
from ._nodes import Node, NotPlain, OfHeads, Recorded
from ._other import OtherTensor, RowFactors
from ._rotary import Part
from ._sizes import input_like
from ._tables import HalfTable, Table, last_axis
from ._vectors import Vector
from ._views import View

# Operations whose results have memory of their own.
_NEW = ("linear", "norm", "add", "multiply", "scale", "weigh")
_WITH_HEADS = (slice(None), slice(None), None, slice(None))


class Value(View):
    """A view of the result of a node, and the operations that the code of a module may apply to it."""

    __slots__ = ()

    def unsqueeze(self, axis: int) -> Value | Table | OfHeads:
        """One head, a table, or a number for each head."""
        if axis == -1:
            return OfHeads(self)
        if axis not in (1, 2):
            raise NotPlain
        if not self._may_be_table():
            return self._viewed(self._width_of_columns(), heads_first=axis == 1)
        return Table(self.node, axis, is_wide=False)

    def _may_be_table(self) -> bool:
        return self.node.kind == "input" and len(self.shape) == 3

    def __getitem__(self, index: Any) -> Any:
        """The first or last numbers of each head, some columns, or the first half of a table."""
        if self._split:
            return Part(self, 0, self._split)[index]
        if self._may_be_table() and self._node.width is None:
            return self.unsqueeze(2) if index == _WITH_HEADS else HalfTable.of(self._node, index)
        width = self._width_of_columns()
        part = last_axis(index, 3)
        if not all(x is None or type(x) is int for x in (part.start, part.stop, part.step)):
            raise NotPlain
        begin, end, step = part.indices(width)
        if step != 1 or begin >= end:
            raise NotPlain
        return self._some(begin, end)

    __iter__ = None  # outputs of transformers ask for it

    def rotated(
        self, axis: int | None, tables: tuple[Node, Node], rotary_dim: int, pairs: str, is_wide: bool
    ) -> Value:
        """Of each head the first numbers are turned: so many, or if 0 as many as the tables have. axis: The heads'."""
        if axis != (1 if self._heads_first else 2):
            raise NotPlain
        return self._of_heads("rotary", tables, (self._split, rotary_dim, pairs, is_wide))

    def joined(self, other: Any, is_repeated: bool = False) -> Value:
        """Each head, and behind it that of the other value, or if it is repeated the only one that this has."""
        if not isinstance(other, Value) or self.is_flat or other.is_flat:
            raise NotPlain
        if not self._split and not other._split and not is_repeated:
            return self._before(other)
        if not self._split or not other._split:
            raise NotPlain
        heads = self._heads()
        if self._heads_first is not other._heads_first or self._node.sizes is not other._node.sizes:
            raise NotPlain
        if other._heads() != (1 if is_repeated else heads):
            raise NotPlain
        node = self.graph.add(
            Node("join", (self._own_node(), other._own_node()), (self._split, other._split))
        )
        node.sizes, node.width = self._node.sizes, heads * sum(node.what)
        return Value(self.graph, node, sum(node.what), self._heads_first)

    def _before(self, other: Value) -> Value:
        """All columns of both."""
        one, two = self.node, other.node
        if one.sizes is not two.sizes or one.width is None or two.width is None:
            raise NotPlain
        node = self.graph.add(Node("join", (one, two), (one.width, two.width)))
        node.sizes, node.width = one.sizes, one.width + two.width
        return Value(self.graph, node)

    def _of_heads(self, kind: str, others: tuple[Node, ...], what: Any) -> Value:
        """The result of an operation on each head."""
        if not self._split or self.is_flat:
            raise NotPlain
        mine = self._own_node()
        node = self.graph.add(Node(kind, (mine, *others), what))
        node.sizes, node.width = mine.sizes, mine.width
        return Value(self.graph, node, self._split, self._heads_first)

    def _by_number(self, other: Value) -> Value:
        """Each head times a number."""
        if self._heads_first or other.shape != (*self._node.sizes, self._heads()):
            raise NotPlain
        return self._of_heads("multiply_heads", (other.node,), (self._split,))

    def with_norm(self, norm: Any) -> Value:
        """The norm of each head."""
        return self._of_heads("head_norm", (), (norm, self._split))

    def sigmoid(self) -> Value:
        return self.graph.apply("sigmoid", self)

    def to(self, dtype: Any) -> Value:
        if dtype is not self.dtype:
            raise NotPlain
        return self

    def float(self) -> Value | Part | Gate:
        if self.dtype is torch.float32:
            return self
        return Part(self, 0, self._split, is_wide=True) if self._split else Gate(self)

    def __add__(self, other: Any) -> Any:
        if isinstance(other, Vector) and self.dtype is torch.float32 and not self._split and not self.is_flat:
            return Gate(self) + other
        return self.graph.apply("add", self, other)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Table):
            return Part(self, 0, self._split) * other
        if isinstance(other, Vector):
            return self._by_vector(other.tensor)
        if isinstance(other, OfHeads):
            return self._by_number(other.value)
        if isinstance(other, RowFactors):
            return self._weighed(other.of_type(self.dtype))
        if isinstance(other, OtherTensor):
            return self._of_heads("weigh", (other.of_positions(self._heads_first, self.dtype),), ())
        if type(other) not in (int, float):
            return self.graph.apply("multiply", self, other)
        if self._columns or abs(other) > torch.finfo(torch.float32).max:
            raise NotPlain
        made = self.graph.apply("scale", Value(self.graph, self._node), what=other)
        return Value(self.graph, made._node, self._split, self._heads_first, is_flat=self.is_flat)

    __radd__, __rmul__ = __add__, __mul__

    def __imul__(self, other: Any) -> Value:
        """Of a new result that nothing else has read."""
        node = self._node
        is_new = node.kind in _NEW and not node.users and not self._split and self._columns is None
        if not is_new or not isinstance(other, (int, float, Vector)) or self.graph.has_views(node, self):
            raise NotPlain
        self._node = (self * other)._node
        return self

    def _weighed(self, factors: Node) -> Value:
        """Each row times its factor."""
        if self.is_flat:
            raise NotPlain
        node = self.node
        made = self.graph.add(Node("weigh", (node, factors), ()))
        made.sizes, made.width = node.sizes, node.width
        return Value(self.graph, made)

    def _by_vector(self, vector: torch.Tensor) -> Value:
        """Times the only number of a parameter or buffer, as the factor of each position."""
        if vector.numel() != 1 or vector.dtype is not self.dtype or self.is_flat:
            raise NotPlain
        like = input_like(self.node, self.graph)
        factors = self.graph.add(Node("torch", (like,), lambda x: vector.expand(1, x.shape[1], 1)))
        return self._weighed(factors)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return called(func, args, kwargs or {})


class Unused(Recorded):
    """A result that nothing may use."""

    def __init__(self, graph: Any) -> None:
        graph.add_value(self)
