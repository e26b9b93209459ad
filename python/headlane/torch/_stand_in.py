"""What stands for modules while code is recorded: it records what the code uses of them."""

from __future__ import annotations

import enum
import functools
import inspect
import types
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ._delta import filter_of
from ._modules import OF_ANY, Linear, Replaced
from ._nodes import NotPlain
from ._vectors import Weight

if TYPE_CHECKING:
    from ._graph import Graph


_namespace = functools.cache(vars)  # of a class: one object for each
_UNCHANGING = (
    type(None),
    int,
    float,
    complex,
    str,
    torch.dtype,
    torch.device,
    type,
    enum.Enum,
    types.FunctionType,
)


def original_of(module: nn.Module) -> type:
    return module.headlane_original if isinstance(module, Replaced) else type(module)


def namespaces(original: type, name: str) -> list[Mapping[str, Any]]:
    """Of the classes that a class derives from, up to the one that has an attribute, or all if none has it."""
    found = [_namespace(x) for x in original.__mro__]
    return found[: next((i + 1 for i, x in enumerate(found) if name in x), None)]


def is_constant(value: Any) -> bool:
    """Whether what an attribute has remains the same while it is the same object."""
    if isinstance(value, tuple):
        return all(map(is_constant, value))
    if isinstance(value, functools.partial):
        return all(map(is_constant, (value.func, *value.args, *value.keywords.values())))
    if isinstance(value, types.BuiltinFunctionType):
        return value.__self__ is None or isinstance(value.__self__, (type, types.ModuleType))
    return isinstance(value, _UNCHANGING)


def is_simple(module: nn.Module) -> bool:
    """Whether a module has nothing of its own but constants, which are all that its code can change, as far as is
    known: it does not change what it is given, either.
    """
    own = [x for name, x in vars(module).items() if name not in OF_ANY]
    return not getattr(module, "inplace", False) and all(is_constant(x) or _is_method(x, module) for x in own)


def _is_method(value: Any, module: nn.Module) -> bool:
    return inspect.ismethod(value) and value.__self__ is module


class _StandIn:
    """Stands for a module while its code is recorded: gives its children, its methods, and attributes that are
    constants, or the configuration of a model of transformers.
    """

    def __init__(self, module: nn.Module, graph: Graph) -> None:
        self.__dict__["_of"] = module, graph

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        module, graph = self._of
        return graph.call(module, arguments, options)

    def __getattr__(self, name: str) -> Any:
        module, graph = self._of
        if name in module._modules:
            return self._child(name)
        original = original_of(module)
        home = graph.home_of(original, name)
        graph.read(module.__dict__, name)
        if home is not None:
            found = home[name]
            if isinstance(found, property):
                graph.read_globals(found.fget)
                return found.__get__(self)
            if name not in module.__dict__:
                if isinstance(found, (types.FunctionType, staticmethod, classmethod)):
                    graph.read_globals(found)
                    return found.__get__(self, original)
                return self._constant(found)
        for there in (module.__dict__, module._parameters, module._buffers):
            graph.read(there, name)
            if name in there:
                value = there[name]
                if there is module.__dict__ or value is None:
                    return self._constant(value)
                if name == "weight" and isinstance(module, Linear):
                    return Weight(value)
                is_of_convolution = name == "weight" and isinstance(module, nn.Conv1d)
                return filter_of(module, graph) if is_of_convolution else graph.vector(value)
        graph.read(module._modules, name)
        if original.__getattr__ is not nn.Module.__getattr__:
            raise NotPlain
        raise AttributeError(name)

    def _constant(self, value: Any) -> Any:
        module, graph = self._of
        graph.read_globals(value)
        if _is_method(value, module):
            return value.__func__.__get__(self)
        if hasattr(value, "_attn_implementation_internal"):  # the configuration of a model of transformers
            graph.read(value.__dict__, "_attn_implementation_internal")
        elif not is_constant(value):
            raise NotPlain
        return value

    def _child(self, name: str) -> Any:
        module, graph = self._of
        child = graph.child(module, name)
        return None if child is None else graph.stand_in(child)

    def __setattr__(self, name: str, value: Any) -> None:
        raise NotPlain

    def __bool__(self) -> bool:
        return len(self) > 0 if hasattr(original_of(self._of[0]), "__len__") else True  # type: ignore[arg-type]


class _List(_StandIn):
    """Of a list of modules."""

    def __iter__(self) -> Iterator[Any]:
        module, graph = self._of
        graph.lengths[id(module._modules)] = module._modules, len(module._modules)
        return iter([self._child(name) for name in module._modules])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __getitem__(self, index: int) -> Any:
        return list(iter(self))[index]


@functools.cache
def stand_in(original: Any, forward: Any) -> type:
    """_StandIn with the code of a class, which may ask for type(self).forward, and whether it is a Module."""
    names = {"forward": forward, "__class__": property(lambda self: original)}
    is_list = getattr(original, "__iter__", None) in (nn.Sequential.__iter__, nn.ModuleList.__iter__)
    return type(original.__name__, (_List if is_list else _StandIn,), names)
