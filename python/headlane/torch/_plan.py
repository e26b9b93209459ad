"""Products with what follows them: a module whose code is plain runs as a few fused calls."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

import torch
from torch import nn
from torch.nn.modules import module as _hooks

from headlane import _core

from ._graph import Code
from ._modules import is_untouched, norm, product
from ._state import threads
from ._values import Attention, Node

# Computes one value of a module from the values before.
Step = Callable[[list[Any]], torch.Tensor]
# Makes the step of an operation when it is known where the values before are.
Maker = Callable[[dict[Node, int]], Step]


class Plan:
    """The calls that a module consists of."""

    def __init__(self, code: Code, steps: list[Step]) -> None:
        self.steps = steps
        self.tail = code.tail
        self.structure = list(code.graph.structure.values())
        self.reads = list(code.graph.reads.values())
        # It is the code of several modules.
        self.is_deep = any(parent is not code.module for parent, _, _ in self.structure)

    @classmethod
    def of(
        cls, module: nn.Module, dtype: torch.dtype, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> Plan | None:
        """None if the code of the module is not plain, or has nothing to fuse."""
        code = Code.of(module, dtype, arguments, options)
        if code is None:
            return None
        fusion = _Fusion(code.nodes)
        plan = cls(code, fusion.steps()) if fusion.makers else None
        # 16-bit sums of several modules would be rounded less often than by their own code.
        return None if plan is not None and plan.is_deep and dtype is not torch.float32 else plan

    def applies(self) -> bool:
        """Whether the module is what it was, and nobody looks at what happens between its layers."""
        if _hooks._global_forward_hooks or _hooks._global_forward_pre_hooks:
            return False
        for parent, name, child in self.structure:
            if parent._modules.get(name) is not child:
                return False
            if child is not None and (child.training or not is_untouched(child)):
                return False
        return all(there.get(name, there) is value for there, name, value in self.reads)

    def run(self, tensors: list[torch.Tensor]) -> Any:
        values: list[Any] = list(tensors)
        for step in self.steps:
            values.append(step(values))
        return values[-1] if self.tail is None else (values[-1], *self.tail)


class _Fusion:
    """Which operations of a module become one call.

    makers: for each fused call its last operation, in whose place it is, and how it is made.
    absorbed: the other operations of fused calls.
    """

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        self.makers: dict[Node, Maker] = {}
        self.absorbed: set[Node] = set()
        self.products: dict[Node, _Product] = {}
        for node in nodes:
            if node.kind == "linear" and node not in self.absorbed:
                self._fuse_linear(node)
        for node in nodes:
            if node.kind == "norm":
                total = node.inputs[0]
                if total.kind == "add" and self._only_user(total) is node and self._is_free(total):
                    self._fuse([total], node, _norm_of_sum(node.what, *total.inputs))
        for last, second in list(self.products.items()):
            hidden = second.node.inputs[0]
            first = self.products.get(hidden)
            if first is not None and first.residual is None and len(hidden.users) == 1:
                self._fuse([hidden], last, _feed_forward(first, second))

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
                return self._fuse_product(chain, user, _Product(node, activation, other))
        if activation is not None:
            return self._fuse_product(chain[:-1], last, _Product(node, activation, None))
        self.products[node] = _Product(node, None, None)
        return None

    def _fuse_product(self, others: list[Node], last: Node, made: _Product) -> None:
        self.products[last] = made
        self._fuse(others, last, _linear(made))

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
        places, what = [at[x] for x in node.inputs], node.what
        first, last = places[0], places[-1]
        if node.kind == "linear":
            return lambda values: product(what, values[first])
        if node.kind == "norm":
            return lambda values: norm(what, values[first])
        if node.kind == "call":
            return lambda values: what(values[first])
        if node.kind == "add":
            return lambda values: values[first] + values[last]
        if node.kind == "multiply":
            return lambda values: values[first] * values[last]
        if node.kind == "scale":
            return lambda values: values[first] * what
        if node.kind == "attention":
            return _attention(what, places)
        return lambda values: _core.activate(node.kind, node.kind, values[first], None, threads())

    return make


def _attention(call: Attention, places: list[int]) -> Step:
    def step(values: list[Any]) -> torch.Tensor:
        given = [
            (x := values[place]).view(*x.shape[:-1], -1, dim).transpose(1, 2)
            for place, dim in zip(places, call.dims)
        ]
        mask = values[places[3]] if len(places) > 3 else None
        return call.forward(call.module, *given, mask, *call.arguments, **call.options)[0].flatten(-2)

    return step


class _Product(NamedTuple):
    """activation(x @ weight.T + bias) + residual"""

    node: Node
    activation: str | None
    residual: Node | None

    @property
    def columns(self) -> int:
        return self.node.what._headlane.matrix.columns

    def __call__(self, x: torch.Tensor, residual: torch.Tensor | None, out: Any = None) -> torch.Tensor:
        module = self.node.what
        if residual is None or residual.shape == (*x.shape[:-1], self.columns):
            return product(module, x, self.activation, residual, out)
        return product(module, x, self.activation, None, out) + residual


def _added(made: _Product, at: dict[Node, int]) -> Callable[[list[Any]], Any]:
    """Finds the residual of a product, None if it has none."""
    if made.residual is None:
        return lambda values: None
    place = at[made.residual]
    return lambda values: values[place]


def _linear(made: _Product) -> Maker:
    def make(at: dict[Node, int]) -> Step:
        x, residual = at[made.node.inputs[0]], _added(made, at)
        return lambda values: made(values[x], residual(values))

    return make


# Elements between two products, which stay in the L3. One thread takes 0.97 to 0.99 of the time so,
# two take 1.02, as each call has them wait for each other (8 sequences of BERT-base and ViT-B/16).
_HIDDEN = 1 << 20
_ROWS = 12  # a chunk is whole tiles


def _feed_forward(first: _Product, second: _Product) -> Maker:
    """Two products, by one thread a chunk of rows at a time."""

    def make(at: dict[Node, int]) -> Step:
        x, residual = at[first.node.inputs[0]], _added(second, at)
        chunk = max(_ROWS, _HIDDEN // max(first.columns, 1) // _ROWS * _ROWS)

        def step(values: list[Any]) -> torch.Tensor:
            given, added = values[x], residual(values)
            shape = (*given.shape[:-1], second.columns)
            rows = given.numel() // max(given.shape[-1], 1)
            if rows <= chunk or threads() > 1 or (added is not None and added.shape != shape):
                return second(first(given, None), added)
            made, hidden = given.new_empty(shape), given.new_empty((chunk, first.columns))
            flat = [None if t is None else t.reshape(rows, t.shape[-1]) for t in (given, added, made)]
            for begin in range(0, rows, chunk):
                part, plus, out = (None if t is None else t[begin : begin + chunk] for t in flat)
                second(first(part, None, hidden[: len(part)]), plus, out)
            return made

        return step

    return make


def _gated(gate: Node, up: Node, activation: str) -> Maker:
    def make(at: dict[Node, int]) -> Step:
        x, one, two = at[gate.inputs[0]], gate.what, up.what

        def step(values: list[Any]) -> torch.Tensor:
            given = values[x]
            left, right = one._headlane, two._headlane
            if (left.matrix.dtype, left.activations) != (right.matrix.dtype, right.activations):
                return product(one, given, activation) * product(two, given)
            matrices = left.matrix, right.matrix
            biases = one._parameters["bias"], two._parameters["bias"]
            return _core.gemm_gated(given, *matrices, *biases, activation, left.activations, None, threads())

        return step

    return make


def _norm_of_sum(module: Any, a: Node, b: Node) -> Maker:
    def make(at: dict[Node, int]) -> Step:
        x, r = at[a], at[b]

        def step(values: list[Any]) -> torch.Tensor:
            one, two = values[x], values[r]
            return norm(module, one, two) if one.shape == two.shape else module(one + two)

        return step

    return make
