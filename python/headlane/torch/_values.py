"""Tensors that are not there yet: the code of a module is run with them, and they record what it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from ._cached import Cached
from ._nodes import Attention, Mask, Node, NotPlain, Read, Recorded, Size
from ._rotary import Part, Table, last_axis

if TYPE_CHECKING:
    from ._graph import Graph

_FUNCTIONS: dict[Any, str] = {
    F.relu: "relu",
    torch.relu: "relu",
    torch.Tensor.relu: "relu",
    F.silu: "silu",
    F.sigmoid: "sigmoid",
    torch.sigmoid: "sigmoid",
    torch.Tensor.sigmoid: "sigmoid",
    F.tanh: "tanh",
    torch.tanh: "tanh",
    torch.Tensor.tanh: "tanh",
}


class Value(Recorded):
    """The result of a node, [..., width], or a view of it: [batch, length, heads, head_dim] if it is split,
    [batch, heads, length, head_dim] if its heads are first, [batch * length, width] if it is flat.
    """

    __slots__ = ("__weakref__", "_columns", "_graph", "_heads_first", "_node", "_split", "is_flat")

    def __init__(
        self,
        graph: Graph,
        node: Node,
        split: int = 0,
        heads_first: bool = False,
        columns: tuple[int, int] | None = None,
        is_flat: bool = False,
    ) -> None:
        self._graph = graph
        self._node = node
        self._split = split  # the head_dim
        self._heads_first = heads_first
        self._columns = columns  # if it has only some
        self.is_flat = is_flat
        graph.add_value(self)

    def _viewed(self, split: int = 0, heads_first: bool = False, is_flat: bool = False) -> Value:
        return Value(self._graph, self._node, split, heads_first, self._columns, is_flat)

    @property
    def node(self) -> Node:
        """Of a value that is not split."""
        if self._split:
            raise NotPlain
        return self._own_node()

    def _own_node(self) -> Node:
        """That of its columns, if it has only some."""
        return self._node if self._columns is None else self._graph.columns_of(self._node, *self._columns)

    @property
    def head_dim(self) -> int:
        return self._split

    @property
    def is_split(self) -> bool:
        return self._split != 0

    @property
    def _width(self) -> int | None:
        return self._node.width if self._columns is None else self._columns[1] - self._columns[0]

    @property
    def dtype(self) -> torch.dtype:
        return self._graph.dtype

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")  # others are refused

    @property
    def shape(self) -> tuple[Any, ...]:
        sizes, width = self._node.sizes, self._width
        if sizes is None or len(sizes) != 2 or self.is_flat:
            raise NotPlain
        if not self._split:
            return (*sizes, Size() if width is None else width)
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

    def view(self, *sizes: Any) -> Value:
        """Splits the last axis of [batch, length, width] in two, or makes one of the two again, or of the first
        two, and these again.
        """
        sizes = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], tuple) else sizes
        known = self._node.sizes
        if self._heads_first or known is None or len(known) != 2 or len(sizes) not in (2, 3, 4):
            raise NotPlain
        if len(sizes) == 2:
            if self._split or sizes[0] != -1 or self._width is None or sizes[1] != self._width:
                raise NotPlain
            return self._viewed(is_flat=True)
        batch, length, last = sizes[0], sizes[1], sizes[-1]
        if batch is not known[0] or not (length is known[1] or (length == -1 and -1 not in sizes[2:])):
            raise NotPlain
        if len(sizes) == 3:
            if last not in (-1, self._width):
                raise NotPlain
            return self._viewed()
        if type(last) is not int or last <= 0 or self._split not in (0, last):
            raise NotPlain
        made = self._viewed(last)
        if sizes[2] not in (-1, made._heads()):
            raise NotPlain
        return made

    reshape = view

    def transpose(self, one: int, two: int) -> Value:
        if not self._split or {one % 4, two % 4} != {1, 2}:
            raise NotPlain
        return self._viewed(self._split, not self._heads_first)

    def split(self, size: Any, dim: int = 0) -> tuple[Value, ...]:
        """Parts of so many columns, or of so many numbers of each head."""
        width = self._split or self._width_of_columns()
        if type(size) is not int or size <= 0 or dim not in (3 if self._split else 2, -1):
            raise NotPlain
        return tuple(self._some(first, min(first + size, width)) for first in range(0, width, size))

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
            node = self._graph.columns_of(self._own_node(), begin, end, self._split)
            return Value(self._graph, node, end - begin, self._heads_first)
        first = 0 if self._columns is None else self._columns[0]
        return Value(self._graph, self._node, columns=(first + begin, first + end))

    def unsqueeze(self, axis: int) -> Table:
        if axis not in (1, 2) or self.node.kind != "input" or len(self.shape) != 3:
            raise NotPlain
        return Table(self.node, axis, is_wide=False)

    def __getitem__(self, index: Any) -> Any:
        """The first or last numbers of each head, or some columns."""
        if self._split:
            return Part(self, 0, self._split)[index]
        width = self._width_of_columns()
        part = last_axis(index)
        if not all(x is None or type(x) is int for x in (part.start, part.stop, part.step)):
            raise NotPlain
        begin, end, step = part.indices(width)
        if step != 1 or begin >= end:
            raise NotPlain
        return self._some(begin, end)

    __iter__ = None  # outputs of transformers ask for it

    def rotated(
        self, cosines: Table, sines: Table, rotary_dim: int, interleaved: bool, is_wide: bool
    ) -> Value:
        """Of each head the first numbers are turned: so many, or if 0 as many as the tables have."""
        axis = 1 if self._heads_first else 2
        if not cosines.axis == sines.axis == axis:
            raise NotPlain
        what = self._split, rotary_dim, interleaved, cosines.by_pair, is_wide
        return self._of_heads("rotary", (cosines.node, sines.node), what)

    def _of_heads(self, kind: str, others: tuple[Node, ...], what: Any) -> Value:
        """The result of an operation on each head."""
        if not self._split:
            raise NotPlain
        mine = self._own_node()
        node = self._graph.add(Node(kind, (mine, *others), what))
        node.sizes, node.width = mine.sizes, mine.width
        return Value(self._graph, node, self._split, self._heads_first)

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
        if self._split and self.dtype is not torch.float32:
            return Part(self, 0, self._split, is_wide=True)
        return self.to(torch.float32)

    def __add__(self, other: Any) -> Value:
        return self._graph.apply("add", self, other)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Table):
            return Part(self, 0, self._split) * other
        if type(other) not in (int, float):
            return self._graph.apply("multiply", self, other)
        if self._columns or abs(other) > torch.finfo(torch.float32).max:
            raise NotPlain
        made = self._graph.apply("scale", Value(self._graph, self._node), what=other)
        return Value(self._graph, made._node, self._split, self._heads_first, is_flat=self.is_flat)

    __radd__, __rmul__ = __add__, __mul__

    def __iadd__(self, other: Any) -> Value:
        raise NotPlain

    __imul__ = __iadd__

    def __bool__(self) -> bool:
        raise NotPlain

    def attend(
        self, ours: Any, module: Any, key: Any, value: Any, mask: Any, arguments: Any, options: Any
    ) -> Value:
        """The result of transformers' attention, [batch, length, heads, head_dim]."""
        entries = None
        if isinstance(key, Cached):
            entries = key.attended_with(value)
            key, value = entries.keys, entries.values
        is_filled = entries is not None and key is None
        given = (self, self, self) if is_filled else (self, key, value)
        if not all(isinstance(x, Value) and x._split and x._heads_first for x in given):
            raise NotPlain
        options = {name: x for name, x in options.items() if name not in ours.IGNORED}
        bias = options.pop("position_bias", None)
        if any(isinstance(x, (Value, Mask)) for x in (*arguments, *options.values())):
            raise NotPlain
        read = Read(
            self._node,
            None if is_filled else key._node,
            None if is_filled else value._node,
            entries and entries.cache,
            None if mask is None else mask.node,
            None if bias is None else bias.node,
        ).there()
        heads = tuple((x._columns, x._split) for x in given)
        module = self._graph.module_of(module)
        what = Attention(ours, module, read, heads, entries and entries.arguments, arguments, options)
        node = self._graph.add(Node("attention", tuple(read.values()), what))
        *_, (_, value_dim) = heads
        node.sizes, node.width = self._node.sizes, self._heads() * value_dim
        return Value(self._graph, node, value_dim)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        value = next(x for x in (*args, *kwargs.values()) if isinstance(x, Value))
        graph = value._graph
        if func is F.dropout and kwargs.get("training", args[2] if len(args) > 2 else True) is False:
            return args[0]
        if func in (torch.chunk, torch.split) and isinstance(args[0], Value):
            return getattr(args[0], func.__name__)(*args[1:], **kwargs)
        if func in (torch.add, torch.mul) and len(args) == 2 and not kwargs:
            return graph.apply("add" if func is torch.add else "multiply", *args)
        if func is F.gelu and len(args) == 1:
            return graph.apply("gelu_tanh" if kwargs.get("approximate") == "tanh" else "gelu", *args)
        if func in _FUNCTIONS and len(args) == 1 and not any(kwargs.values()):
            return graph.apply(_FUNCTIONS[func], *args)
        raise NotPlain
