"""Products with what follows them: a module whose code is plain runs as a few fused calls."""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch import nn

from headlane._core import are_there

from ._attended import layer_of
from ._code import Code
from ._fusion import Fusion
from ._graph import Graph
from ._modules import Linear, wants_gradient
from ._nodes import Node
from ._operations import Step
from ._sizes import input_like
from ._untouched import has_global_hooks, packed_of, untouched

Steps = list[tuple[Step, list[int], bool]]


class Plan:
    """The calls that a module consists of.

    is_deep: Whether they are the code of several modules.
    calls: The modules without parameters that it calls.
    with_room: Those where the cache has room for new keys; none if they are the same.
    filled: Of attentions to the keys of an encoder: the numbers of the cache, of its layer, and of an input that
        has as many sequences.
    lengths_of_keys: For each attention a function of the inputs: how many keys it has.
    asks_if_single: Whether the code asks if there is one token.
    with_states: The layers of a cache that have its states of linear attention.
    equal: The numbers of inputs that must have the rows of others, those, and their width.
    appends: Of attentions that append keys to a cache: the numbers of the cache and of its layer.
    """

    def __init__(self, code: Code, steps: Steps, modules: set[nn.Module] | None) -> None:
        self.steps = steps
        self.is_deep = code.is_deep()
        at = {node: number for number, node in enumerate(code.nodes)}
        self.filled = [
            (at[x.what.read(x.inputs).cache], x.what.entries[0], at[input_like(x, code.graph)])
            for x in code.nodes
            if x.kind == "attention" and x.what.is_of_filled_cache
        ]
        self.with_room: Steps = []
        # Of several caches, one might have no room after another was written.
        if len(code.graph.updates) == 1 or (self.filled and not code.graph.updates):
            with_room = Fusion(code.nodes, modules, has_room=True).steps()
            self.with_room = with_room if len(with_room) < len(steps) else []
        attentions = [x for x in code.nodes if x.kind == "attention"]
        self.lengths_of_keys = [_length_of_keys(x, code.graph, at) for x in attentions]
        self.appends = [
            (at[x.what.read(x.inputs).cache], x.what.entries[0]) for x in attentions if x.what.changes_cache
        ]
        self.equal = [(at[one], at[other], width) for one, other, width in code.graph.equal]
        self.asks_if_single = code.graph.asks_if_single
        self.with_states = [x.layer for x in code.graph.states]
        self.wrapped = code.wrapped
        structure = list(code.graph.structure.values())
        children = [child for _, _, child in structure if child is not None]
        expected = [(parent._modules, name, child) for parent, name, child in structure]
        expected += [x for child in children for x in untouched(child)] + list(code.graph.reads.values())
        expected += [x for child in children if isinstance(child, Linear) for x in packed_of(child)]
        # Dicts that may be replaced as a whole, of which those above are read.
        parts = dict.fromkeys((code.module, *(parent for parent, _, _ in structure), *children))
        dicts = ("_modules", "_parameters", "_buffers")
        expected += [(x.__dict__, name, x.__dict__[name]) for x in parts for name in dicts]
        self.expected = [x for entry in expected for x in entry]  # as are_there() takes them
        self.lengths = list(code.graph.lengths.values())
        self.children = children
        self.vectors = [(x, x.numel(), x.dtype) for x in code.graph.vectors]
        self.hooks = [x for child in children for x in (child._forward_hooks, child._forward_pre_hooks)]
        self.calls = [x.what for x in code.nodes if x.kind == "call" and not x.what._modules]
        # Modules with weights that it calls as they are: mixtures of experts, and parts of them.
        self.whole = [x.what for x in code.nodes if x.kind == "call" and x.what._modules]
        self.whole += [x.what[0] for x in code.nodes if x.kind in ("first", "part")]
        self.size = len(code.nodes)

    @classmethod
    def of(
        cls,
        module: nn.Module,
        dtype: torch.dtype,
        arguments: tuple[Any, ...],
        options: dict[str, Any],
        is_single: bool = False,
    ) -> Plan | None:
        """None if the code of the module is not plain, or has nothing to fuse."""
        code = Code.of(module, dtype, arguments, options, is_single)
        if code is None:
            return None
        changes_cache = code.graph.updates or code.graph.states
        if changes_cache and not all(map(_never_repeats, code.nodes)):
            return None
        # What is fused is rounded to 16 bits less often: no more than the plan of a module fuses.
        modules = code.modules() if code.is_deep() and dtype is not torch.float32 else None
        steps = Fusion(code.nodes, modules).steps()
        return None if len(steps) == sum(x.kind != "input" for x in code.nodes) else cls(code, steps, modules)

    def applies(self) -> bool:
        """Whether the module is what it was, nobody looks at what happens between its layers, and no gradients of
        their parameters are wanted.
        """
        if has_global_hooks():
            return False
        if not are_there(self.expected):
            return False
        for children, count in self.lengths:
            if len(children) != count:
                return False
        if any(x.numel() != count or x.dtype is not dtype for x, count, dtype in self.vectors):
            return False  # by `.data`
        if torch.is_grad_enabled() and (
            any(map(wants_gradient, self.children))
            or any(x.requires_grad for x, _, _ in self.vectors)
            or any(wants_gradient(x) for one in self.whole for x in one.modules())
        ):
            return False
        return not any(self.hooks)

    def sees_several_keys(self, inputs: list[Any]) -> bool:
        """Whether each attention has more than one: by one alone nobody can tell its keys and its mask."""
        return all(length(inputs) > 1 for length in self.lengths_of_keys)

    def run(self, inputs: list[Any]) -> Any:
        """Computes the result; NotImplemented for tensors that do not fit, of rows that are to be repeated, and for
        keys in a cache whose gradients are wanted.
        """
        if torch.is_grad_enabled() and any(
            getattr(getattr(layer_of(inputs[cache], layer), name, None), "requires_grad", False)
            for cache, layer in self.appends
            for name in ("keys", "values")
        ):
            return NotImplemented
        for one, other, width in self.equal:
            if inputs[one].shape != (*inputs[other].shape[:-1], width):
                return NotImplemented
        for cache, layer, rows in self.filled:
            keys = getattr(layer_of(inputs[cache], layer), "keys", None)
            if keys is None or len(keys) != len(inputs[rows]):
                return NotImplemented
        if self.with_room:
            result = self._run(self.with_room, inputs)
            if result is not NotImplemented:
                return result
        return self._run(self.steps, inputs)

    def _run(self, steps: Steps, inputs: list[Any]) -> Any:
        values: list[Any] = [*inputs, *[None] * (self.size - len(inputs))]
        is_changed = False  # a cache, to which the code of the module would append the same keys again
        for step, unread, changes_cache in steps:
            if step(values) is NotImplemented:
                if is_changed:
                    raise RuntimeError("headlane.torch: values do not fit, after a cache was changed")
                return NotImplemented
            is_changed = is_changed or changes_cache
            for place in unread:
                values[place] = None
        return self.wrapped(values)


def _length_of_keys(attention: Node, graph: Graph, at: dict[Node, int]) -> Callable[[list[Any]], int]:
    call = attention.what
    read = call.read(attention.inputs)
    rows = None if call.is_of_filled_cache else at[input_like(read.key, graph)]

    def length(inputs: list[Any]) -> int:
        new = 0 if rows is None else inputs[rows].shape[1]
        if read.cache is None:
            return new
        before = getattr(layer_of(inputs[at[read.cache]], call.entries[0]), "keys", None)
        return new if before is None else new + before.shape[-2]

    return length


def _never_repeats(node: Node) -> bool:
    """Whether an operation fits in all calls, if it is one that would repeat rows: not after a cache was changed."""
    return node.kind not in ("add", "multiply") or node.has_equal_inputs()
