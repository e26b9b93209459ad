"""Views of tensors that are not there yet: their shapes, columns and heads."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch

from ._complex import Neighbours
from ._delta import Channels
from ._from_cache import FromCache
from ._nodes import Heads, Node, NotPlain, Recorded
from ._scan import OneToken
from ._tables import Length, Width

if TYPE_CHECKING:
    from ._graph import Graph


class View(Recorded):
    """The result of a node, [..., width], or a view of it: [batch, length, heads, head_dim] if it is split,
    [batch, heads, length, head_dim] if its heads are first, [batch * length, width] if it is flat.
    """

    __slots__ = (
        "__weakref__",
        "_columns",
        "graph",
        "half_of",
        "_heads_first",
        "_node",
        "_split",
        "is_flat",
    )

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
        self.half_of: tuple[Any, int] | None = None  # if it has half of each head: of which, 0 or 1
        graph.add_value(self)

    def _viewed(self, split: int = 0, heads_first: bool = False, is_flat: bool = False) -> Any:
        return type(self)(self.graph, self._node, split, heads_first, self._columns, is_flat)

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

    def has_one_token(self) -> bool:
        """Whether all sequences have one; the plan is for such calls, then."""
        return isinstance(self.length, Length) and self.length == 1

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
        two, and these again; or makes it one head; or splits heads in pairs of neighbours or in parts. Of sequences
        of one token [batch, heads, head_dim] are its heads.
        """
        sizes = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], tuple) else sizes
        if len(sizes) == 5:
            return Neighbours.of(self, sizes) if self._split else Parts.of(self, sizes)
        if self._heads_first:
            return self.without_heads().view(*sizes)
        known = self._node.sizes
        if known is None or len(known) != 2 or len(sizes) not in (2, 3, 4):
            raise NotPlain
        if len(sizes) == 2:
            return self._flat(*sizes)
        if len(sizes) == 4 and type(sizes[1]) is int and sizes[1] == 1:
            return self._as_one_head(sizes)
        if len(sizes) == 3 and type(sizes[1]) is int and sizes[1] > 0 and self.has_one_token():
            return OneToken(self.view(sizes[0], *known[1:], *sizes[1:]))
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

    def _flat(self, rows: Any, width: Any) -> Any:
        """[-1, width] of all columns, or of each head."""
        all_columns = self._width
        if rows != -1 or all_columns is None or type(width) is not int or width <= 0:
            raise NotPlain
        if not self._split and width == all_columns:
            return self._viewed(is_flat=True)
        if all_columns % width or self._split not in (0, width):
            raise NotPlain
        return self._viewed(width, is_flat=True)

    def of_rows(self, width: int) -> Node:
        """Its node, if it has rows of this width: all columns, or heads."""
        if self._heads_first or (self._split or self._width) != width:
            raise NotPlain
        return self._own_node()

    def of_tokens(self) -> tuple[Node, int, int]:
        """Its node, the first of its columns, and the head_dim of [batch, length, heads, head_dim]."""
        if not self._split or self._heads_first or self.is_flat:
            raise NotPlain
        return self._node, self._columns[0] if self._columns else 0, self._split

    def _as_one_head(self, sizes: tuple[Any, ...]) -> Any:
        width = self._width_of_columns()
        if (sizes[0], sizes[2]) != self._node.sizes or sizes[3] not in (-1, width):
            raise NotPlain
        return self._viewed(width, heads_first=True)

    def as_source(self) -> FromCache:
        return FromCache(None, self)

    def expand(self, *sizes: Any) -> FromCache:
        return FromCache(None, self).expand(*sizes)

    def without_heads(self) -> Any:
        """[batch, length, width] of one head."""
        if not self._heads_first or self._heads() != 1:
            raise NotPlain
        return self._viewed()

    def transpose(self, one: int, two: int) -> Any:
        if not self._split and not self.is_flat and {one % 3, two % 3} == {1, 2}:
            return Channels(self)
        if not self._split or {one % 4, two % 4} != {1, 2}:
            raise NotPlain
        return self._viewed(self._split, not self._heads_first)

    def split(self, size: Any, dim: int = 0) -> tuple[Any, ...]:
        """Parts of so many columns, or of so many numbers of each head; or of as many as a list says."""
        if self.is_flat:
            raise NotPlain
        width = self._split or self._width_of_columns()
        if type(size) is int and size > 0:
            size = [min(size, width - first) for first in range(0, width, size)]
        is_right = type(size) in (list, tuple) and all(type(x) is int and x > 0 for x in size)
        if not is_right or sum(size) != width or dim not in (3 if self._split else 2, -1):
            raise NotPlain
        made = tuple(self._some(end - one, end) for one, end in zip(size, accumulate(size)))
        if self._split and len(made) == 2 and size[0] == size[1]:
            for number, part in enumerate(made):
                part.half_of = self, number
        return made

    def chunk(self, count: Any, dim: int = 0) -> tuple[Any, ...]:
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

    def _some(self, begin: int, end: int) -> Any:
        first = 0 if self._columns is None else self._columns[0]
        columns = first + begin, first + end
        if self._split and self._heads() == 1:
            return type(self)(self.graph, self._node, end - begin, self._heads_first, columns)
        if self._split:
            node = self.graph.columns_of(self._own_node(), begin, end, self._split)
            return type(self)(self.graph, node, end - begin, self._heads_first)
        return type(self)(self.graph, self._node, columns=columns)

    def for_attention(self) -> tuple[Node, Heads]:
        """Its node, and which columns of it are heads, [batch, heads, length, head_dim]."""
        if not self._split or not self._heads_first:
            raise NotPlain
        return self._node, (self._columns, self._split)

    def contiguous(self) -> Any:
        return self


class Parts(Recorded):
    """Heads of several parts each, [batch, length, heads, count, head_dim]."""

    def __init__(self, heads: View, count: int) -> None:
        self._heads = heads
        self._count = count

    @classmethod
    def of(cls, x: View, sizes: tuple[Any, ...]) -> Parts:
        *others, count, dim = sizes
        if any(type(size) is not int or size <= 0 for size in (count, dim)):
            raise NotPlain
        return cls(x.view(*others, count * dim), count)

    def __getitem__(self, index: Any) -> Any:
        """[..., number, :]"""
        if type(index) is not tuple or len(index) != 3 or index[::2] != (Ellipsis, slice(None)):
            raise NotPlain
        number, dim = index[1], self._heads.head_dim // self._count
        if type(number) is not int or not -self._count <= number < self._count:
            raise NotPlain
        first = number % self._count * dim
        return self._heads._some(first, first + dim)
