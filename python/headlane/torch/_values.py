"""Tensors that are not there yet: the code of a module is run with them, and they record what it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

if TYPE_CHECKING:
    from ._graph import Graph


class NotPlain(Exception):
    """The code does what a plan cannot."""


class Size:
    """A size that only a call knows. Code that asks for more than which one it is, is not plain."""

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        raise NotPlain

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise NotPlain


class Node:
    """An operation: "linear", "norm", "add", "multiply", "scale", "attention", "input", "call" of a module
    without parameters, or the name of an activation.

    what: The Linear, norm or module, the factor, or an Attention.
    sizes: Of the result, but the last one; None if they are not known.
    width: The last size; None if it is not known.
    """

    __slots__ = ("inputs", "kind", "sizes", "users", "what", "width")

    def __init__(self, kind: str, inputs: tuple[Node, ...] = (), what: Any = None) -> None:
        self.kind = kind
        self.inputs = inputs
        self.what = what
        self.users: list[Node] = []
        sizes = [node.sizes for node in inputs]
        self.sizes = sizes[0] if sizes and all(x is sizes[0] for x in sizes) else None
        widths = {node.width for node in inputs} - {None}
        self.width: int | None = widths.pop() if len(widths) == 1 else None
        for node in inputs:
            node.users.append(self)

    def other_input(self, one: Node) -> Node:
        """The input beside `one`, of an operation that has two."""
        return self.inputs[1] if self.inputs[0] is one else self.inputs[0]


class Attention:
    """A call of transformers' attention: of which module, with which head dims, arguments and options."""

    __slots__ = ("arguments", "dims", "module", "options", "ours")

    def __init__(
        self, ours: Any, module: Any, dims: tuple[int, ...], arguments: Any, options: dict[str, Any]
    ) -> None:
        self.ours = ours  # headlane.transformers
        self.module = module
        self.dims = dims
        self.arguments = arguments
        self.options = options

    def __call__(self, query: Any, key: Any, value: Any, mask: Any) -> Any:
        given = query, key, value, mask
        return self.ours.attention_forward(self.module, *given, *self.arguments, **self.options)[0]

    def is_plain(self) -> bool:
        """Whether only options_of() are left to do before headlane.scaled_dot_product_attention."""
        known = {*self.ours.CALL_OPTIONS, "is_causal", "dropout"}
        others = {name: x for name, x in self.options.items() if name not in known}
        try:
            self.ours.require_known(others)
        except ValueError:
            return False
        return not self.arguments and len(set(self.dims)) == 1

    def options_of(self, mask: Any, length: int) -> tuple[Any, ...]:
        """Mask, whether it is causal, scale and the others, for queries and keys of this length."""
        if mask is not None:
            self.ours.require_mask(mask)
        given = {name: x for name, x in self.options.items() if name in self.ours.CALL_OPTIONS}
        made = self.ours.options_of_call(mask, bool(self.options.get("is_causal")), length, length, **given)
        return made.pop("attn_mask"), made.pop("is_causal"), made.pop("scale"), made


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


class Value:
    """The result of a node, [..., width], or a view of it: [batch, length, heads, head_dim] if it is split,
    [batch, heads, length, head_dim] if its heads are first.
    """

    __slots__ = ("_graph", "_heads_first", "_node", "_split")

    def __init__(self, graph: Graph, node: Node, split: int = 0, heads_first: bool = False) -> None:
        self._graph = graph
        self._node = node
        self._split = split  # the head_dim
        self._heads_first = heads_first

    @property
    def node(self) -> Node:
        """Of a value that is not split."""
        if self._split:
            raise NotPlain
        return self._node

    @property
    def dtype(self) -> torch.dtype:
        return self._graph.dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        sizes, width = self._node.sizes, self._node.width
        if sizes is None or len(sizes) != 2:
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
        width = self._node.width
        if width is None or width % self._split:
            raise NotPlain
        return width // self._split

    def view(self, *sizes: Any) -> Value:
        """Splits the last axis of [batch, length, width] in two, or makes one of the two again."""
        sizes = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], tuple) else sizes
        known = self._node.sizes
        if self._heads_first or known is None or len(known) != 2 or len(sizes) not in (3, 4):
            raise NotPlain
        batch, length, last = sizes[0], sizes[1], sizes[-1]
        if batch is not known[0] or not (length is known[1] or (length == -1 and -1 not in sizes[2:])):
            raise NotPlain
        if len(sizes) == 3:
            width = self._node.width
            if last != -1 and (width is None or last != width):
                raise NotPlain
            return Value(self._graph, self._node)
        if type(last) is not int or last <= 0 or self._split not in (0, last):
            raise NotPlain
        made = Value(self._graph, self._node, last)
        if sizes[2] not in (-1, made._heads()):
            raise NotPlain
        return made

    reshape = view

    def transpose(self, one: int, two: int) -> Value:
        if not self._split or {one % 4, two % 4} != {1, 2}:
            raise NotPlain
        return Value(self._graph, self._node, self._split, not self._heads_first)

    def contiguous(self) -> Value:
        return self

    def __add__(self, other: Any) -> Value:
        return self._graph.apply("add", self, other)

    def __mul__(self, other: Any) -> Value:
        if type(other) not in (int, float):
            return self._graph.apply("multiply", self, other)
        if abs(other) > torch.finfo(torch.float32).max:
            raise NotPlain
        made = self._graph.apply("scale", Value(self._graph, self._node), what=other)
        return Value(self._graph, made._node, self._split, self._heads_first)

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
        given = (self, key, value)
        if not all(isinstance(x, Value) and x._split and x._heads_first for x in given):
            raise NotPlain
        if any(isinstance(x, (Value, Mask)) for x in (*arguments, *options.values())):
            raise NotPlain
        inputs = tuple(x._node for x in given)
        if mask is not None:
            inputs += (mask.node,)
        dims = tuple(x._split for x in given)
        what = Attention(ours, self._graph.module_of(module), dims, arguments, dict(options))
        node = self._graph.add(Node("attention", inputs, what))
        node.sizes, node.width = self._node.sizes, self._heads() * dims[2]
        return Value(self._graph, node, dims[2])

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        value = next(x for x in (*args, *kwargs.values()) if isinstance(x, Value))
        graph = value._graph
        if func is F.dropout and kwargs.get("training", args[2] if len(args) > 2 else True) is False:
            return args[0]
        if func in (torch.add, torch.mul) and len(args) == 2 and not kwargs:
            return graph.apply("add" if func is torch.add else "multiply", *args)
        if func is F.gelu and len(args) == 1:
            return graph.apply("gelu_tanh" if kwargs.get("approximate") == "tanh" else "gelu", *args)
        if func in _FUNCTIONS and len(args) == 1 and not any(kwargs.values()):
            return graph.apply(_FUNCTIONS[func], *args)
        raise NotPlain


class Mask:
    """A tensor of another type: nothing but attention may have it."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def __bool__(self) -> bool:
        raise NotPlain
