"""Modules that are not called: the code of their parents is run with stand-ins, which record what it uses."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ._modules import Linear, Replaced
from ._nodes import NotPlain

if TYPE_CHECKING:
    from ._graph import Graph


def original_of(module: nn.Module) -> type:
    return module.headlane_original if isinstance(module, Replaced) else type(module)


class _StandIn:
    """Stands for a module while its code is recorded."""

    def __init__(self, module: nn.Module, graph: Graph) -> None:
        self.__dict__["_of"] = module, graph

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        module, graph = self._of
        return graph.call(module, arguments, options)

    def __getattr__(self, name: str) -> Any:
        module, graph = self._of
        if name in module._modules:
            return self._child(name)
        value = getattr(module, name)
        if isinstance(module, Linear) and name in module._parameters:
            return value  # whose type may be asked for
        if isinstance(value, (torch.Tensor, nn.Module)):
            raise NotPlain
        graph.read(module.__dict__, name)
        if inspect.ismethod(value) and value.__self__ is module:
            return value.__func__.__get__(self)
        if hasattr(value, "_attn_implementation_internal"):  # the configuration of a model of transformers
            graph.read(value.__dict__, "_attn_implementation_internal")
        return value

    def _child(self, name: str) -> Any:
        module, graph = self._of
        child = graph.child(module, name)
        return None if child is None else stand_in(original_of(child))(child, graph)

    def __setattr__(self, name: str, value: Any) -> None:
        raise NotPlain

    def __iter__(self) -> Iterator[Any]:
        module, _ = self._of
        return iter([self._child(name) for name in module._modules])

    def __getitem__(self, index: int) -> Any:
        return list(self)[index]


@functools.cache
def stand_in(original: Any) -> type:
    """_StandIn with the code of a class, which may ask for type(self).forward, and whether it is a Module."""
    names = {"forward": original.forward, "__class__": property(lambda self: original)}
    return type(original.__name__, (_StandIn,), names)
