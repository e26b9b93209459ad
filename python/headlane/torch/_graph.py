"""What the code of a module does, if it is plain.

The code is run once with values that record what is done to them. A plain module only applies its Linear
layers, norms, activations and dropout, and adds or multiplies results.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ._modules import Activation, LayerNorm, Linear, Replaced, RmsNorm
from ._recognise import activation_of_module

_IDENTITY = "identity"


class _NotPlain(Exception):
    """The code does what a plan cannot."""


class Node:
    """An operation: of a child ("linear", "norm"), "add", "multiply", "input", or the name of an activation."""

    __slots__ = ("child", "inputs", "kind", "users")

    def __init__(self, kind: str, inputs: tuple[Node, ...] = (), child: str = "") -> None:
        self.kind = kind
        self.inputs = inputs
        self.child = child
        self.users: list[Node] = []
        for node in inputs:
            node.users.append(self)

    def other_input(self, one: Node) -> Node:
        """The input beside `one`, of an operation that has two."""
        return self.inputs[1] if self.inputs[0] is one else self.inputs[0]


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


class _Value:
    """A tensor that is not there yet."""

    def __init__(self, graph: _Graph, node: Node) -> None:
        self._graph = graph
        self._node = node

    @property
    def dtype(self) -> torch.dtype:
        return self._graph.dtype

    def __add__(self, other: Any) -> _Value:
        return self._graph.apply("add", self, other)

    def __mul__(self, other: Any) -> _Value:
        return self._graph.apply("multiply", self, other)

    __radd__, __rmul__ = __add__, __mul__

    def __bool__(self) -> bool:
        raise _NotPlain

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        value = next(x for x in (*args, *kwargs.values()) if isinstance(x, _Value))
        graph = value._graph
        if func is F.dropout and kwargs.get("training", args[2] if len(args) > 2 else True) is False:
            return args[0]
        if func in (torch.add, torch.mul) and len(args) == 2 and not kwargs:
            return graph.apply("add" if func is torch.add else "multiply", *args)
        if func is F.gelu and len(args) == 1:
            return graph.apply("gelu_tanh" if kwargs.get("approximate") == "tanh" else "gelu", *args)
        if func in _FUNCTIONS and len(args) == 1 and not any(kwargs.values()):
            return graph.apply(_FUNCTIONS[func], *args)
        raise _NotPlain


class _Graph:
    """What the code of a module does."""

    def __init__(self, module: nn.Module, dtype: torch.dtype) -> None:
        self.nodes: list[Node] = []
        self.dtype = dtype
        self.kinds = {name: _kind_of(child) for name, child in module._modules.items()}

    def add(self, node: Node) -> _Value:
        self.nodes.append(node)
        return _Value(self, node)

    def apply(self, kind: str, *values: Any, child: str = "") -> _Value:
        if not all(isinstance(x, _Value) for x in values):
            raise _NotPlain
        if kind == _IDENTITY:
            return values[0]
        return self.add(Node(kind, tuple(x._node for x in values), child))


class _Child:
    """Stands for a child of the module."""

    def __init__(self, name: str, child: Any, graph: _Graph) -> None:
        self._name = name
        self._module = child
        self._graph = graph

    def __call__(self, *values: Any) -> _Value:
        kind = self._graph.kinds[self._name]
        if kind is None or len(values) != 1:
            raise _NotPlain
        return self._graph.apply(kind, *values, child=self._name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


class _Self:
    """Stands for the module while its code is recorded."""

    def __init__(self, module: nn.Module, graph: _Graph) -> None:
        self.__dict__["_of"] = module, graph

    def __getattr__(self, name: str) -> Any:
        module, graph = self._of
        if name in module._modules:
            return _Child(name, module._modules[name], graph)
        if name in module._parameters or name in module._buffers:
            raise _NotPlain
        value = getattr(module, name)
        if isinstance(value, torch.Tensor):
            raise _NotPlain
        return value.__func__.__get__(self) if inspect.ismethod(value) else value

    def __setattr__(self, name: str, value: Any) -> None:
        raise _NotPlain

    def __iter__(self) -> Iterator[Any]:
        module, graph = self._of
        return iter([_Child(name, child, graph) for name, child in module._modules.items()])


def _kind_of(child: Any) -> str | None:
    if isinstance(child, Linear):
        return "linear"
    if isinstance(child, (LayerNorm, RmsNorm)):
        return "norm"
    if isinstance(child, Activation):
        return child._headlane
    if isinstance(child, nn.Module) and not isinstance(child, Replaced):
        return _IDENTITY if activation_of_module(child) == _IDENTITY else None
    return None


class Code:
    """The operations of a module, in their order; the last one is the result."""

    def __init__(self, dtype: torch.dtype, inputs: int, nodes: list[Node]) -> None:
        self.dtype = dtype
        self.inputs = inputs
        self.nodes = nodes

    @classmethod
    def of(cls, module: nn.Module) -> Code | None:
        """None if the code is not plain."""
        dtypes = {x._headlane.dtype for x in module._modules.values() if isinstance(x, Linear)}
        if len(dtypes) != 1 or module._parameters or module._buffers:
            return None
        graph = _Graph(module, dtypes.pop())
        if any(kind is None for kind in graph.kinds.values()):
            return None
        original = module.headlane_original if isinstance(module, Replaced) else type(module)
        try:
            parameters = list(inspect.signature(original.forward).parameters.values())[1:]
            if any(p.kind not in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters):
                return None
            inputs = [graph.add(Node("input")) for p in parameters if p.default is p.empty]
            result = original.forward(_Self(module, graph), *inputs)
        except Exception:  # whatever the code says to values that are no tensors
            return None
        if not isinstance(result, _Value) or result._node is not graph.nodes[-1]:
            return None
        return cls(graph.dtype, len(inputs), graph.nodes)
