"""Layers that call experts, and what chooses them, in their own code: plans call these modules as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ._experts import AnyExperts, is_mixture, results_of
from ._nodes import Node, NotPlain, Recorded
from ._stand_in import original_of
from ._values import Value

if TYPE_CHECKING:
    from ._graph import Graph


class Opaque(Recorded):
    """A tensor of which nothing is known: nothing but such a module may have it."""

    def __init__(self, graph: Graph, node: Node) -> None:
        self.node = node
        graph.add_value(self)


def is_part(module: nn.Module, caller: nn.Module) -> bool:
    """Whether a module has weights of its own, and is called by code that calls experts."""
    has_weights = isinstance(module, AnyExperts) or any(x is not None for x in module._parameters.values())
    return is_mixture(caller) and has_weights


def call_part(module: nn.Module, arguments: tuple[Any, ...], graph: Graph) -> Any:
    """What it returns: experts a value like their first argument, others what is not known."""
    if not arguments or not all(isinstance(x, (Value, Opaque)) for x in arguments):
        raise NotPlain
    are_flat = tuple(isinstance(x, Value) and x.is_flat for x in arguments)
    is_like_first = isinstance(module, AnyExperts)
    count = 0 if is_like_first else results_of(original_of(module).forward)
    node = graph.add(Node("part", tuple(x.node for x in arguments), (module, are_flat, count)))
    if is_like_first:
        if not isinstance(arguments[0], Value):
            raise NotPlain
        node.sizes, node.width = arguments[0].node.sizes, arguments[0].node.width
        return Value(graph, node, is_flat=are_flat[0])
    if not count:
        return Opaque(graph, node)
    return tuple(Opaque(graph, graph.add(Node("item", (node,), i))) for i in range(count))


def run_part(module: nn.Module, are_flat: tuple[bool, ...], count: int, given: list[torch.Tensor]) -> Any:
    """NotImplemented if the module returns other things than were recorded."""
    made = module(*(x.flatten(0, -2) if is_flat else x for x, is_flat in zip(given, are_flat)))
    if count:
        return made if type(made) is tuple and len(made) == count else NotImplemented
    if not isinstance(module, AnyExperts):
        return NotImplemented if type(made) is tuple else made
    return made.view(given[0].shape) if made.numel() == given[0].numel() else NotImplemented
