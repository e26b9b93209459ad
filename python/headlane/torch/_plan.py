"""Products with what follows them: a module whose code is plain runs as a few fused calls."""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch import nn
from torch.compiler import is_compiling
from torch.nn.modules import module as _hooks

from headlane import _core

from ._graph import Code, Node
from ._modules import Replaced, is_untouched, norm, product
from ._state import is_plain, threads

# Computes one value of a module from its children and the values before.
Step = Callable[[dict[str, Any], list[Any]], torch.Tensor]
# Makes the step of an operation when it is known where the values before are.
Maker = Callable[[dict[Node, int]], Step]


class Plan:
    """The calls that a module consists of."""

    def __init__(self, module: nn.Module, code: Code, steps: list[Step]) -> None:
        self.dtype = code.dtype
        self.inputs = code.inputs
        self.steps = steps
        self.children = dict(module._modules)

    @classmethod
    def of(cls, module: nn.Module) -> Plan | None:
        """None if the code of the module is not plain, or has nothing to fuse."""
        code = Code.of(module)
        if code is None:
            return None
        fusion = _Fusion(code.nodes)
        return cls(module, code, fusion.steps()) if fusion.makers else None

    def applies(self, module: Any, arguments: tuple[Any, ...]) -> bool:
        """Whether the module is what it was, and nobody looks at what happens between its layers."""
        if len(arguments) != self.inputs or not all(is_plain(x, self.dtype) for x in arguments):
            return False
        if _hooks._global_forward_hooks or _hooks._global_forward_pre_hooks:
            return False
        modules = module._modules
        for name, child in self.children.items():
            if modules.get(name) is not child or child.training or not is_untouched(child):
                return False
        return True

    def run(self, module: Any, arguments: tuple[Any, ...]) -> torch.Tensor:
        values, modules = list(arguments), module._modules
        for step in self.steps:
            values.append(step(modules, values))
        return values[-1]


class _Fusion:
    """Which operations of a module become one call.

    makers: for each fused call its last operation, in whose place it is, and how it is made.
    absorbed: the other operations of fused calls.
    """

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        self.makers: dict[Node, Maker] = {}
        self.absorbed: set[Node] = set()
        for node in nodes:
            if node.kind == "linear" and node not in self.absorbed:
                self._fuse_linear(node)
        for node in nodes:
            if node.kind == "norm":
                total = node.inputs[0]
                if total.kind == "add" and self._only_user(total) is node and self._is_free(total):
                    self._fuse([total], node, _norm_of_sum(node.child, *total.inputs))

    def _is_free(self, node: Node) -> bool:
        return node not in self.makers and node not in self.absorbed

    def _only_user(self, node: Node) -> Node | None:
        """The only operation that reads a value, if it is not part of a fused call."""
        return node.users[0] if len(node.users) == 1 and self._is_free(node.users[0]) else None

    def _fuse(self, others: list[Node], last: Node, maker: Maker) -> None:
        self.absorbed.update(others)
        self.makers[last] = maker

    def _fuse_linear(self, node: Node) -> None:
        chain, activation = [node], None
        user = self._only_user(node)
        if user is not None and user.kind in _ACTIVATIONS:
            activation = user.kind
            chain.append(user)
            user = self._only_user(user)
        last = chain[-1]
        other = user.other_input(last) if user is not None and len(user.inputs) == 2 else None
        if user is not None and other is not None and other is not last:
            is_pair = (
                other.kind == "linear" and other.inputs == node.inputs and self._only_user(other) is user
            )
            if user.kind == "multiply" and activation is not None and is_pair:
                return self._fuse([*chain, other], user, _gated(node, other, activation))
            if user.kind == "add":
                return self._fuse(chain, user, _linear(node, activation, other))
        if activation is not None:
            self._fuse(chain[:-1], last, _linear(node, activation, None))
        return None

    def steps(self) -> list[Step]:
        at: dict[Node, int] = {}
        steps: list[Step] = []
        for node in self.nodes:
            if node in self.absorbed:
                continue
            if node.kind != "input":
                steps.append(self.makers.get(node, _alone(node))(at))
            at[node] = len(at)
        return steps


_ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "erf")


def _alone(node: Node) -> Maker:
    """An operation that is not fused."""

    def make(at: dict[Node, int]) -> Step:
        places, name = [at[x] for x in node.inputs], node.child
        first, last = places[0], places[-1]
        if node.kind in ("linear", "norm"):
            return lambda modules, values: modules[name](values[first])
        if node.kind == "add":
            return lambda modules, values: values[first] + values[last]
        if node.kind == "multiply":
            return lambda modules, values: values[first] * values[last]
        return lambda modules, values: _core.activate(node.kind, node.kind, values[first], None, threads())

    return make


def _linear(node: Node, activation: str | None, residual: Node | None) -> Maker:
    def make(at: dict[Node, int]) -> Step:
        x, name = at[node.inputs[0]], node.child
        if residual is None:
            return lambda modules, values: product(modules[name], values[x], activation)
        r = at[residual]

        def step(modules: dict[str, Any], values: list[Any]) -> torch.Tensor:
            module, given, added = modules[name], values[x], values[r]
            if added.shape == (*given.shape[:-1], module._headlane.matrix.columns):
                return product(module, given, activation, added)
            return product(module, given, activation) + added

        return step

    return make


def _gated(gate: Node, up: Node, activation: str) -> Maker:
    def make(at: dict[Node, int]) -> Step:
        x = at[gate.inputs[0]]

        def step(modules: dict[str, Any], values: list[Any]) -> torch.Tensor:
            one, two, given = modules[gate.child], modules[up.child], values[x]
            left, right = one._headlane, two._headlane
            if (left.matrix.dtype, left.activations) != (right.matrix.dtype, right.activations):
                return product(one, given, activation) * product(two, given)
            matrices = left.matrix, right.matrix
            biases = one._parameters["bias"], two._parameters["bias"]
            return _core.gemm_gated(given, *matrices, *biases, activation, left.activations, None, threads())

        return step

    return make


def _norm_of_sum(name: str, a: Node, b: Node) -> Maker:
    def make(at: dict[Node, int]) -> Step:
        x, r = at[a], at[b]

        def step(modules: dict[str, Any], values: list[Any]) -> torch.Tensor:
            one, two = values[x], values[r]
            return norm(modules[name], one, two) if one.shape == two.shape else modules[name](one + two)

        return step

    return make


class FusedState:
    """The plan of a module. It is not copied with the module but made again."""

    __slots__ = ("plan", "stale")

    def __init__(self, plan: Plan | None = None) -> None:
        self.plan = plan
        self.stale = False

    def __deepcopy__(self, memo: Any) -> FusedState:
        return FusedState()

    def __reduce__(self) -> Any:
        return FusedState, ()


class Fused(Replaced):
    """A module with a plan."""

    def forward(self, *arguments: Any, **options: Any) -> Any:
        state = self._headlane
        if not options and not self.training and not state.stale and not is_compiling():
            if state.plan is None:
                state.plan = Plan.of(self)
                state.stale = state.plan is None
            if state.plan is not None and state.plan.applies(self, arguments):
                return state.plan.run(self, arguments)
        return super().forward(*arguments, **options)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if not name.startswith("_") and name != "training":
            self._headlane.stale = True  # the code may read it
