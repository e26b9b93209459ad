"""The code of a module as operations, recorded in a graph."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import is_dataclass
from typing import Any, Callable

import torch
from torch import nn

from ._arguments import recorded
from ._graph import Graph
from ._nodes import Node, NotPlain
from ._tried import RandomState
from ._values import Value


class Code:
    """The operations of a module, in their order; the last one is the result.

    wrapped: What the code returns, of all values: the result, in a tuple before None and inputs, or in an output
        of transformers.
    """

    def __init__(self, module: nn.Module, graph: Graph, wrapped: Callable[[list[Any]], Any]) -> None:
        self.module = module
        self.graph = graph
        self.nodes = graph.nodes
        self.wrapped = wrapped

    @classmethod
    def of(
        cls,
        module: nn.Module,
        dtype: torch.dtype,
        arguments: tuple[Any, ...],
        options: dict[str, Any],
        is_single: bool = False,
    ) -> Code | None:
        """None if the code is not plain, draws random numbers, or saves values. Instead of tensors and caches
        `Input`s are given.
        """
        for _ in range(2):  # another thread may draw some, too
            graph, numbers = Graph(dtype, is_single), RandomState()
            try:
                wrapped = cls._wrapped(module, graph, arguments, options)
            except Exception:  # whatever the code says to values that are no tensors
                wrapped = None
            if numbers.is_current():
                is_done = all(x.is_attended for x in graph.updates) and all(x.is_kept for x in graph.states)
                if wrapped is None or graph.has_values() or not is_done:
                    return None
                return cls(module, graph, wrapped)
            numbers.restore()
        return None

    @staticmethod
    def _wrapped(
        module: nn.Module, graph: Graph, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> Callable[[list[Any]], Any]:
        """How the code of a module wraps what it returns."""
        given = [recorded(x, graph) for x in (*arguments, *options.values())]
        count = len(arguments)
        made = graph.run(module, tuple(given[:count]), dict(zip(options, given[count:])))
        drop_unread_columns(graph.nodes)
        result, wrapped = _unwrapped(made, graph.nodes)
        if not isinstance(result, Value) or result.is_flat or result.node is not graph.nodes[-1]:
            raise NotPlain
        for entries in graph.updates:
            entries.keys = entries.values = None
        return wrapped

    def is_deep(self) -> bool:
        """Whether it is the code of several modules."""
        return self.module in self.graph.deep

    def modules(self) -> set[nn.Module]:
        """Those in it that have plans of their own, where weights have 16 bits."""
        return {x.module for x in self.nodes if getattr(x.module, "has_plans", False)} - self.graph.deep


def drop_unread_columns(nodes: list[Node]) -> None:
    """Removes them, such as those of halves that became a rotary of the whole."""
    for node in reversed(nodes[:]):
        if node.kind == "columns" and not node.users:
            nodes.remove(node)
            node.inputs[0].users.remove(node)


def _unwrapped(made: Any, nodes: list[Node]) -> tuple[Any, Callable[[list[Any]], Any]]:
    """What a module returns, and how it is wrapped."""
    if type(made) is tuple:
        result, *tail = made
        places = [None if x is None else _place_of_input(x, nodes) for x in tail]
        return result, lambda values: (values[-1], *(None if x is None else values[x] for x in places))
    if isinstance(made, OrderedDict) and len(made) == 1 and is_dataclass(made):
        kind, (name, result) = type(made), *made.items()
        return result, lambda values: kind(**{name: values[-1]})
    return made, lambda values: values[-1]


def _place_of_input(x: Any, nodes: list[Node]) -> int:
    if not isinstance(x, Value) or x.is_flat or x.node.kind != "input":
        raise NotPlain
    return nodes.index(x.node)
