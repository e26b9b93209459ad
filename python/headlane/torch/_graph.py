"""What the code of a module does, if it is plain.

The code is run once with values that record what is done to them (_values.py). A plain module only applies
its Linear layers, norms, activations, dropout and transformers' attention, adds or multiplies results, and
calls modules that are plain, mixtures of experts, or others that have no parameters and are called in plans.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ._arguments import Input
from ._cached import Cached, Entries
from ._delta import LayerState, gated_norm
from ._experts import is_mixture, results_of
from ._from_cache import FromCache
from ._gated_norms import GatedNorm
from ._mixture_parts import call_part, is_part
from ._modules import Activation, Linear, Replaced, WithWeights
from ._nodes import Node, NotPlain, Size
from ._norms import Norm
from ._outside import outside_of
from ._recognise import changes_input
from ._sizes import require_equal, set_width
from ._stand_in import is_simple, namespaces, original_of, stand_in
from ._tables import Length
from ._values import Unused, Value
from ._vectors import Vector

_IDENTITY = "identity"
# Of PyTorch, while they are not trained.
_IDENTITIES = (
    nn.Identity,
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)
_RELU_SQUARED = "relu_squared"
_CALL = "call"


class Graph:
    """What the code of a module does, and what that depends on.

    structure: The children that it uses: their parents, the names there, and themselves.
    reads: The attributes that it reads: dicts of modules or classes, the names there, and the values, or the
        dict itself where it has none.
    lengths: Dicts of children that it iterates over, and how many there are.
    updates, states: What is appended to caches, and what these have for linear attention.
    deep: Modules whose code uses more than their own children.
    vectors: The parameters and buffers that it reads by itself.
    equal: Inputs that must have as many rows as others, and their width.
    is_single: Whether the sequences of the first input have one token; asks_if_single: Whether code asks.
    """

    def __init__(self, dtype: torch.dtype, is_single: bool = False) -> None:
        self.dtype = dtype
        self.is_single = is_single
        self.asks_if_single = False
        self.nodes: list[Node] = []
        self.structure: dict[tuple[int, str], tuple[nn.Module, str, nn.Module]] = {}
        self.reads: dict[tuple[int, str], tuple[Mapping[str, Any], str, Any]] = {}
        self.lengths: dict[int, tuple[dict[str, Any], int]] = {}
        self.updates: list[Entries] = []
        self.states: list[LayerState] = []
        self.deep: set[nn.Module] = set()
        self.vectors: list[torch.Tensor] = []
        self.equal: list[tuple[Node, Node, int]] = []
        self._values: list[weakref.ref[Value]] = []
        self._running: list[nn.Module] = []
        self._stand_ins: dict[nn.Module, Any] = {}
        self._once: dict[tuple[str, Node, Any], Node] = {}

    def add_value(self, value: Value) -> None:
        self._values.append(weakref.ref(value))

    def sizes_of_input(self, axes: int) -> tuple[Size, ...]:
        has_length = any(isinstance(x, Length) for node in self.nodes for x in node.sizes or ())
        return tuple(Size() for _ in range(axes - 1)) if has_length or axes != 3 else (Size(), Length(self))

    def has_values(self) -> bool:
        """Whether any is still there."""
        return any(x() is not None for x in self._values)

    def has_views(self, node: Node, one: Value) -> bool:
        """Whether there are other values of a node."""
        there = [x() for x in self._values]
        return any(x is not one and getattr(x, "_node", None) is node for x in there)

    def columns_of(self, node: Node, begin: int, end: int, group: int = 0) -> Node:
        """Some columns of the result of a node, or of each group of them, whose width is known."""
        made = self.once("columns", node, (begin, end, group))
        made.width = (end - begin) * (node.width // group if group and node.width else 1)
        return made

    def once(self, kind: str, node: Node, what: Any) -> Node:
        """An operation on a node, the same if there is one."""
        made = self._once.get((kind, node, what))
        if made is None:
            made = self._once[kind, node, what] = self.add(Node(kind, (node,), what))
        return made

    def vector(self, tensor: Any) -> Vector:
        is_known = type(tensor) in (nn.Parameter, torch.Tensor) and tensor.layout is torch.strided
        if not is_known or tensor.dim() != 1 or not tensor.is_cpu:
            raise NotPlain
        self.vectors.append(tensor)
        return Vector(tensor)

    def read(self, there: Mapping[str, Any], name: str) -> None:
        self.reads[id(there), name] = there, name, there.get(name, there)

    def home_of(self, original: type, name: str) -> Mapping[str, Any] | None:
        """The namespace of the class that has an attribute, which those before it may get, too."""
        for there in namespaces(original, name):
            self.read(there, name)
        return there if name in there else None

    def read_globals(self, function: Any) -> None:
        """What the code of a function reads outside of it."""
        for there, name in outside_of(function).values():
            self.read(there, name)

    def child(self, parent: nn.Module, name: str) -> nn.Module | None:
        child = parent._modules[name]
        self.structure[id(parent), name] = parent, name, child  # type: ignore[assignment]
        if parent is not self._running[-1]:
            self.deep.add(self._running[-1])
        return child

    def add(self, node: Node) -> Node:
        node.module = self._running[-1] if self._running else None
        self.nodes.append(node)
        return node

    def apply(self, kind: str, *values: Any, what: Any = None) -> Value:
        if not all(isinstance(x, Value) for x in values):
            raise NotPlain
        first, *others = (x.is_flat for x in values)
        if any(x is not first for x in others):
            raise NotPlain
        node = self.add(Node(kind, tuple(x.node for x in values), what))
        if any(x.kind == "attention" and x.what.entries is not None for x in self.nodes):
            require_equal(node, self)  # not to repeat rows after a cache was changed
        return Value(self, node, is_flat=first)

    def call(self, module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """What a child returns."""
        self._require_usual_call(original_of(module))
        kind = _kind_of(module)
        if kind is None and self._running and is_part(module, self._running[-1]) and not options:
            return call_part(module, arguments, self)
        is_called = kind is None and (is_mixture(module) or _is_call(module))
        if kind is None and module._modules and not is_called:
            return self.run(module, arguments, options)
        if isinstance(module, GatedNorm):
            return gated_norm(module, arguments, options)
        kind = kind or _CALL
        if kind == "linear" and len(arguments) == 1 and _is_of_positions(arguments[0]):
            return self._multiply_positions(module, arguments[0], options)
        if len(arguments) != 1 or options or not isinstance(arguments[0], Value):
            raise NotPlain
        if kind == _IDENTITY or (is_called and self._is_dropout(module)):
            return arguments[0]
        if kind == _RELU_SQUARED:
            relu = self.apply("relu", *arguments)
            return relu * relu
        if kind == _CALL and (not is_called or arguments[0].is_flat):
            raise NotPlain
        (x,) = arguments
        if kind == "norm" and x.head_dim > 0:
            made = x.with_norm(module)
        else:
            set_width(x.node, _width_of(module))
            made = self.apply(kind, x, what=module)
            count = results_of(original_of(module).forward) if is_mixture(module) else 0
            if count:
                made.node.kind, made.node.what = "first", (module, count)
                return made, *(Unused(self) for _ in range(count - 1))
        if isinstance(module, Linear):
            self.read(module._parameters, "bias")
            self._require(module._headlane.dtype)
            made.node.width = module._headlane.matrix.columns
        elif isinstance(module, Norm):
            self.read_norm(module)
        return made

    def read_norm(self, module: Norm | GatedNorm) -> None:
        self._require(next((x.dtype for x in module._parameters.values() if x is not None), self.dtype))
        for name in module._parameters:
            self.read(module._parameters, name)
        if isinstance(module._headlane.eps, str):
            self.read(module.__dict__, module._headlane.eps)

    def _multiply_positions(self, module: nn.Module, x: Any, options: dict[str, Any]) -> FromCache:
        """The product of one head with a matrix, which does not change."""
        if module._parameters["bias"] is not None:
            raise NotPlain
        source = x if isinstance(x, FromCache) else x.as_source()
        return source.map(lambda one: self.call(module, (one.without_heads(),), options))

    def _require_usual_call(self, original: Any) -> None:
        """A class may have a `__call__` of its own, which does more than its forward function."""
        self.home_of(original, "__call__")
        call = original.__call__
        if call is not nn.Module.__call__ and call.__module__ != "transformers.modeling_layers":
            raise NotPlain

    def _is_dropout(self, module: nn.Module) -> bool:
        """Whether the code of a module asks if it is trained, and returns its argument, as it is not."""
        if module._modules:
            return False
        graph = Graph(self.dtype)
        given = Input(3).value(graph)
        try:
            is_same = graph.run(module, (given,), {}) is given
        except Exception:
            return False
        del given
        if is_same and (id(module.__dict__), "training") in graph.reads and not graph.has_values():
            self.reads.update(graph.reads)
            return True
        return False

    def run(self, module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """What the code of a module returns."""
        if isinstance(module, WithWeights):
            raise NotPlain
        self.deep.update(self._running)
        self._running.append(module)
        home = self.home_of(original_of(module), "forward")
        if home is not None:
            self.read_globals(home["forward"])
        result = self.stand_in(module).forward(*arguments, **options)
        self._running.pop()
        return result

    def stand_in(self, module: nn.Module) -> Any:
        made = self._stand_ins.get(module)
        if made is None:
            original = original_of(module)
            made = self._stand_ins[module] = stand_in(original, original.forward)(module, self)
        return made

    def _require(self, dtype: torch.dtype) -> None:
        if dtype is not self.dtype:
            raise NotPlain

    @staticmethod
    def module_of(stand_in: Any) -> Any:
        return stand_in._of[0]


def _is_of_positions(x: Any) -> bool:
    """Whether it is [batch, heads, length, head_dim]."""
    return isinstance(x, (Cached, FromCache)) or (isinstance(x, Value) and x.head_dim > 0)


def _kind_of(child: nn.Module) -> str | None:
    if isinstance(child, Linear):
        return "linear" if "bias" in child._parameters else None
    if isinstance(child, Norm):
        return None if child._headlane is None else "norm"
    if isinstance(child, Activation):
        return child._headlane
    if type(child) in _IDENTITIES:
        return _IDENTITY
    activations = sys.modules.get("transformers.activations")
    return _RELU_SQUARED if type(child) is getattr(activations, "ReLUSquaredActivation", Graph) else None


def _is_call(module: nn.Module) -> bool:
    """Whether a plan calls a module that has no parameters, as its own code may do anything."""
    has_parts = module._modules or module._parameters or module._buffers
    return not (isinstance(module, Replaced) or has_parts) and is_simple(module) and not changes_input(module)


def _width_of(module: nn.Module) -> int | None:
    """The width of what a module is applied to, if it is one alone."""
    if isinstance(module, Linear):
        return int(module._headlane.matrix.rows)
    weight = module._headlane.weight(module) if isinstance(module, Norm) else None
    return None if weight is None else len(weight)
