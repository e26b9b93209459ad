"""The operations of a plan: those on rows, which run together without Python between them, and the others."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, NamedTuple

import torch

from headlane import _core

from ._attended import Keys, layer_of
from ._mixture_parts import run_part
from ._nodes import Attention, Node
from ._state import threads
from ._with_states import HeldState

ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "erf")

# Computes values of a module from those before, by the numbers of their nodes. NotImplemented if
# they do not fit.
Step = Callable[[list[Any]], Any]
Vector = Callable[[], Any]  # a bias, or the weight of a norm


class Other(NamedTuple):
    """An operation that runs by itself."""

    result: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.result.inputs

    reads = inputs

    @property
    def changes_cache(self) -> bool:
        return self.result.kind == "attention" and self.result.what.changes_cache

    def step(self, at: dict[Node, int]) -> Step:
        compute, to = self._function([at[x] for x in self.inputs]), at[self.result]

        def step(values: list[Any]) -> Any:
            made = values[to] = compute(values)
            return made

        return step

    def _function(self, places: list[int]) -> Callable[[list[Any]], Any]:
        kind, what, first, last = self.result.kind, self.result.what, places[0], places[-1]
        if kind in ("call", "torch"):
            return lambda values: what(values[first])
        if kind == "first":
            return lambda values: _first_of(*what, values[first])
        if kind == "part":
            return lambda values: run_part(*what, [values[place] for place in places])
        if kind == "item":
            return lambda values: values[first][what]
        if kind == "add":
            return lambda values: values[first] + values[last]
        if kind == "multiply":
            return lambda values: values[first] * values[last]
        return _attention(what, places)


def _first_of(module: Any, count: int, x: torch.Tensor) -> Any:
    """The first of so many results, of the shape of x, as it has a row for each; NotImplemented if there are others."""
    made = module(x)
    if type(made) is not tuple or len(made) != count or made[0].numel() != x.numel():
        return NotImplemented
    return made[0].reshape(x.shape)


def _attention(call: Attention, places: list[int]) -> Callable[[list[Any]], torch.Tensor]:
    def compute(values: list[Any]) -> torch.Tensor:
        read = call.read([values[place] for place in places])
        query, key, value = (x if x is None else heads_of(x, *of) for x, of in zip(read[:3], call.heads))
        if call.is_of_filled_cache:
            layer = layer_of(read.cache, call.entries[0])
            key, value = layer.keys, layer.values
        elif call.changes_cache:
            key, value = read.cache.update(key, value, *call.entries)
            if call.shared_as is not None:
                read.shared[call.shared_as] = key, value
        return call(query, key, value, read.mask, read.bias).flatten(-2)

    return compute


def heads_of(x: torch.Tensor, columns: tuple[int, int] | None, head_dim: int) -> torch.Tensor:
    """[batch, heads, length, head_dim] of some columns of [batch, length, width]."""
    if columns is not None:
        x = x[..., columns[0] : columns[1]]
    return x.view(*x.shape[:-1], -1, head_dim).transpose(1, 2)


class Product(NamedTuple):
    """activation(x @ weight.T + bias) + residual"""

    result: Node
    linear: Node
    activation: str | None = None
    residual: Node | None = None

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.linear.inputs if self.residual is None else (*self.linear.inputs, self.residual)

    def add_to(self, rows: Rows) -> int:
        state, (x,) = self.linear.what._headlane, self.linear.inputs
        return rows.program.linear(
            rows.at[x],
            state.matrix,
            rows.bias(self.linear.what),
            self.activation,
            -1 if self.residual is None else rows.at[self.residual],
            state.activations,
        )


class Gated(NamedTuple):
    """activation(gate(x)) * up(x)"""

    result: Node
    gate: Node
    up: Node
    activation: str

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.gate.inputs

    def add_to(self, rows: Rows) -> int:
        gate, up, (x,) = self.gate.what, self.up.what, self.gate.inputs
        matrices = gate._headlane.matrix, up._headlane.matrix
        biases = rows.bias(gate), rows.bias(up)
        return rows.program.gated(rows.at[x], *matrices, *biases, self.activation, gate._headlane.activations)


class Norm(NamedTuple):
    """The norm of x, or of x + residual; of each head of x, if head_dim is not 0."""

    result: Node
    module: Any
    inputs: tuple[Node, ...]
    head_dim: int = 0

    def add_to(self, rows: Rows) -> int:
        module, (x, *residual) = self.module, (rows.at[x] for x in self.inputs)
        state = module._headlane
        vectors = (state.weight, state.bias)
        weight, bias = (-1 if of(module) is None else rows.vector(partial(of, module)) for of in vectors)
        eps = state.eps_of(module)
        return rows.program.norm(state.centred, x, weight, bias, eps, *residual or [-1], self.head_dim)


# How many tables each kind of `Named` reads.
_TABLES = {"rotary": 2, "weigh": 1, "columns": 0, "join": 0, "multiply_heads": 0}


class Named(NamedTuple):
    """An operation whose kind is a method of row programs: of values, and of tables behind them."""

    result: Node

    @classmethod
    def is_this(cls, node: Node) -> bool:
        return node.kind in _TABLES

    @property
    def inputs(self) -> tuple[Node, ...]:
        inputs = self.result.inputs
        return inputs[: len(inputs) - _TABLES[self.result.kind]]

    def add_to(self, rows: Rows) -> int:
        values, tables = self.inputs, self.result.inputs[len(self.inputs) :]
        add = getattr(rows.program, self.result.kind)
        return add(*(rows.at[x] for x in values), *map(rows.table, tables), *self.result.what)


class Elementwise(NamedTuple):
    """An activation by itself, a value times a number, or the sum or product of two values of as many rows."""

    result: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.result.inputs

    @classmethod
    def is_this(cls, node: Node) -> bool:
        is_sum = node.kind in ("add", "multiply") and node.has_equal_inputs()
        return is_sum or node.kind in (*ACTIVATIONS, "scale")

    def add_to(self, rows: Rows) -> int:
        kind, inputs = self.result.kind, [rows.at[x] for x in self.inputs]
        if kind == "scale":
            return rows.program.scale(*inputs, self.result.what)
        if kind in ("add", "multiply"):
            return getattr(rows.program, kind)(*inputs)
        return rows.program.activate(kind, *inputs)


class Rows:
    """Operations on rows that follow each other, as one call.

    at: The numbers of nodes in the program.
    """

    def __init__(self, operations: list[Any], outputs: list[Node]) -> None:
        results = {x.result for x in operations}
        self.inputs = list(dict.fromkeys(x for one in operations for x in one.inputs if x not in results))
        self.outputs = outputs
        self.program = _core.RowProgram(len(self.inputs))
        self.vectors: list[Vector | Node] = []
        self.attentions: list[Keys] = []
        self.states: list[HeldState] = []
        self.at = {node: number for number, node in enumerate(self.inputs)}
        for one in operations:
            self.at[one.result] = one.add_to(self)
        for node in outputs:
            self.program.add_output(self.at[node])

    @property
    def reads(self) -> list[Node]:
        """Inputs, tables, masks and biases."""
        tables = [x for x in self.vectors if isinstance(x, Node)]
        return [*self.inputs, *tables, *(x for one in self.attentions for x in one.read.beside())]

    @property
    def changes_cache(self) -> bool:
        changed = [x.call.changes_cache for x in self.attentions] + [x.changes_cache for x in self.states]
        return any(changed)

    def vector(self, value: Vector) -> int:
        self.vectors.append(value)
        return len(self.vectors) - 1

    def table(self, node: Node) -> int:
        self.vectors.append(node)
        return len(self.vectors) - 1

    def bias(self, module: Any) -> int:
        parameters = module._parameters
        return -1 if parameters["bias"] is None else self.vector(lambda: parameters["bias"])

    def step(self, at: dict[Node, int]) -> Step:
        run = self.program.run
        vectors = [at[x] if isinstance(x, Node) else x for x in self.vectors]
        places, results = [at[x] for x in self.inputs], [at[x] for x in self.outputs]
        attentions = [x.placed(at) for x in self.attentions]

        def step(values: list[Any]) -> Any:
            given = [x if (x := values[place]).is_contiguous() else x.contiguous() for place in places]
            length = given[0].shape[1] if attentions else 0
            states = [x.given(values, at, given[0]) for x in self.states]
            if any(x is NotImplemented for x in states):
                return NotImplemented
            claimed: list[Any] = []
            keys = [x.given(values, length, claimed) for x in attentions]
            made = None
            if None not in keys:
                read = [values[x] if type(x) is int else x() for x in vectors]
                made = run(given, read, keys, states, threads())
            if made is None:
                for _, layer in claimed:
                    layer.release(length)
                return NotImplemented
            for keys_of, layer in claimed:
                keys_of.share(values, layer)
                layer.take(length)
            for place, value in zip(results, made):
                values[place] = value
            return None

        return step
