"""Tensors that are not there yet: the code of a module is run with them, and they record what it does."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch

from ._complex import Pairs
from ._from_cache import FromCache
from ._functions import called
from ._nodes import Heads, Node, NotPlain, Recorded
from ._other import Other
from ._rotary import Part
from ._tables import HalfTable, Table, Width, last_axis

if TYPE_CHECKING:
    from ._graph import Graph

_WITH_HEADS = (slice(None), slice(None), None, slice(None))


class Value(Recorded):
    """The result of a node, [..., width], or a view of it: [batch, length, heads, head_dim] if it is split,
    [batch, heads, length, head_dim] if its heads are first, [batch * length, width] if it is flat.
    """

    __slots__ = ("__weakref__", "_columns", "graph", "_heads_first", "_node", "_split", "is_flat")

    def __init__(
        self,
        graph: Graph,
        node: Node,
        split: int = 0,
        heads_first: bool = False,
        columns: tuple[int, int] | None = None,
        is_flat: bool = False,
    ) -> None:
        self.graph = graph
        self._node = node
        self._split = split  # the head_dim
        self._heads_first = heads_first
        self._columns = columns  # if it has only some
        self.is_flat = is_flat
        graph.add_value(self)

    def _viewed(self, split: int = 0, heads_first: bool = False, is_flat: bool = False) -> Value:
        return Value(self.graph, self._node, split, heads_first, self._columns, is_flat)

    @property
    def node(self) -> Node:
        """Of a value that is not split."""
        if self._split:
            raise NotPlain
        return self._own_node()

    def _own_node(self) -> Node:  # that of its columns, if it has only some
        return self._node if self._columns is None else self.graph.columns_of(self._node, *self._columns)

    @property
    def head_dim(self) -> int:
        """0 if it is not split."""
        return self._split

    @property
    def length(self) -> Any:
        sizes = self._node.sizes or ()
        return sizes[1] if len(sizes) == 2 else None

    @property
    def _width(self) -> int | None:
        return self._node.width if self._columns is None else self._columns[1] - self._columns[0]

    @property
    def dtype(self) -> torch.dtype:
        return self.graph.dtype

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")  # others are refused

    @property
    def shape(self) -> tuple[Any, ...]:
        sizes, width = self._node.sizes, self._width
        if sizes is None or len(sizes) != 2 or self.is_flat:
            raise NotPlain
        if not self._split:
            return (*sizes, Width(self._node) if width is None else width)
        heads = self._heads()
        batch, length = sizes
        middle = (heads, length) if self._heads_first else (length, heads)
        return (batch, *middle, self._split)

    def size(self, axis: int | None = None) -> Any:
        return self.shape if axis is None else self.shape[axis]

    def dim(self) -> int:
        return len(self.shape)

    def _heads(self) -> int:
        width = self._width
        if width is None or width % self._split:
            raise NotPlain
        return width // self._split

    def view(self, *sizes: Any) -> Any:
        """Splits the last axis of [batch, length, width] in two, or makes one of the two again, or of the first
        two, and these again; or makes it one head.
        """
        sizes = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], tuple) else sizes
        if self._split and len(sizes) == 5:
            return Pairs.of(self, sizes)
        known = self._node.sizes
        if self._heads_first or known is None or len(known) != 2 or len(sizes) not in (2, 3, 4):
            raise NotPlain
        if len(sizes) == 2:
            if self._split or sizes[0] != -1 or self._width is None or sizes[1] != self._width:
                raise NotPlain
            return self._viewed(is_flat=True)
        if len(sizes) == 4 and type(sizes[1]) is int and sizes[1] == 1:
            return self._as_one_head(sizes)
        batch, length, last = sizes[0], sizes[1], sizes[-1]
        if batch is not known[0] or not (length is known[1] or (length == -1 and -1 not in sizes[2:])):
            raise NotPlain
        if len(sizes) == 3:
            if last not in (-1, self._width):
                raise NotPlain
            return self._viewed()
        if type(last) is not int or last <= 0:
            raise NotPlain
        made = self._viewed(last)
        if sizes[2] not in (-1, made._heads()):
            raise NotPlain
        return made

    reshape = view

    def _as_one_head(self, sizes: tuple[Any, ...]) -> Value:
        width = self._width_of_columns()
        if (sizes[0], sizes[2]) != self._node.sizes or sizes[3] not in (-1, width):
            raise NotPlain
        return self._viewed(width, heads_first=True)

    def as_source(self) -> FromCache:
        return FromCache(None, self)

    def expand(self, *sizes: Any) -> FromCache:
        return FromCache(None, self).expand(*sizes)

    def without_heads(self) -> Value:
        """[batch, length, width] of one head."""
        if not self._heads_first or self._heads() != 1:
            raise NotPlain
        return self._viewed()

    def transpose(self, one: int, two: int) -> Value:
        if not self._split or {one % 4, two % 4} != {1, 2}:
            raise NotPlain
        return self._viewed(self._split, not self._heads_first)

    def split(self, size: Any, dim: int = 0) -> tuple[Value, ...]:
        """Parts of so many columns, or of so many numbers of each head; or of as many as a list says."""
        width = self._split or self._width_of_columns()
        if type(size) is int and size > 0:
            size = [min(size, width - first) for first in range(0, width, size)]
        is_right = type(size) in (list, tuple) and all(type(x) is int and x > 0 for x in size)
        if not is_right or sum(size) != width or dim not in (3 if self._split else 2, -1):
            raise NotPlain
        return tuple(self._some(end - one, end) for one, end in zip(size, accumulate(size)))

    def chunk(self, count: Any, dim: int = 0) -> tuple[Value, ...]:
        """As many parts, of equally many columns or numbers of each head."""
        width = self._split or self._width_of_columns()
        if type(count) is not int or count <= 0 or width % count:
            raise NotPlain
        return self.split(width // count, dim)

    def _width_of_columns(self) -> int:
        width = self._width
        if self._split or width is None or len(self.shape) != 3:
            raise NotPlain
        return width

    def _some(self, begin: int, end: int) -> Value:
        if self._split:
            self._heads()
            node = self.graph.columns_of(self._own_node(), begin, end, self._split)
            return Value(self.graph, node, end - begin, self._heads_first)
        first = 0 if self._columns is None else self._columns[0]
        return Value(self.graph, self._node, columns=(first + begin, first + end))

    def unsqueeze(self, axis: int) -> Table:
        if axis not in (1, 2) or not self._may_be_table():
            raise NotPlain
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
        if not isinstance(other, Value) or not self._split or not other._split:
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

    def for_attention(self) -> tuple[Node, Heads]:
        """Its node, and which columns of it are heads, [batch, heads, length, head_dim]."""
        if not self._split or not self._heads_first:
            raise NotPlain
        return self._node, (self._columns, self._split)

    def _of_heads(self, kind: str, others: tuple[Node, ...], what: Any) -> Value:
        """The result of an operation on each head."""
        if not self._split:
            raise NotPlain
        mine = self._own_node()
        node = self.graph.add(Node(kind, (mine, *others), what))
        node.sizes, node.width = mine.sizes, mine.width
        return Value(self.graph, node, self._split, self._heads_first)

    def with_norm(self, norm: Any) -> Value:
        """The norm of each head."""
        return self._of_heads("head_norm", (), (norm, self._split))

    def contiguous(self) -> Value:
        return self

    def to(self, dtype: Any) -> Value:
        if dtype is not self.dtype:
            raise NotPlain
        return self

    def float(self) -> Value | Part:
        is_wide = self._split and self.dtype is not torch.float32
        return Part(self, 0, self._split, is_wide=True) if is_wide else self.to(torch.float32)

    def __add__(self, other: Any) -> Value:
        return self.graph.apply("add", self, other)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Table):
            return Part(self, 0, self._split) * other
        if isinstance(other, Other):
            return self._of_heads("weigh", (other.of_positions(self._heads_first, self.dtype),), None)
        if type(other) not in (int, float):
            return self.graph.apply("multiply", self, other)
        if self._columns or abs(other) > torch.finfo(torch.float32).max:
            raise NotPlain
        made = self.graph.apply("scale", Value(self.graph, self._node), what=other)
        return Value(self.graph, made._node, self._split, self._heads_first, is_flat=self.is_flat)

    __radd__, __rmul__ = __add__, __mul__

    def __iadd__(self, other: Any) -> Value:
        raise NotPlain

    __imul__ = __iadd__

    def __bool__(self) -> bool:
        raise NotPlain

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return called(func, args, kwargs or {})
