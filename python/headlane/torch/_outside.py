"""What the code of a function reads outside of it: its globals, and constants of modules and classes there."""

from __future__ import annotations

import dis
import enum
import functools
import inspect
import types
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ._nodes import NotPlain
from ._stand_in import is_constant, namespaces

Places = dict[tuple[int, str], tuple[Mapping[str, Any], str]]

# Packages whose modules and classes stay as they are.
_KNOWN = frozenset(("builtins", "math", "numpy", "torch", "transformers"))
# Those of objects that do.
_KNOWN_OBJECTS = frozenset(("logging", "torch", "transformers", "typing"))


def outside_of(function: Any) -> Places:
    """Dicts and names of what may be assigned anew, by ids and names. NotPlain if the code reads an object, which
    may be another while it is the same one.
    """
    function, found = inspect.unwrap(function), Places()
    if not inspect.isfunction(function):
        return found
    there, is_known = function.__globals__, _package(function.__module__) in ("torch", "transformers")
    outside, attributes = _names(function.__code__)
    for name in sorted(outside & there.keys()):
        value = there[name]
        if type(value) in (dict, list, set):
            raise NotPlain
        if not is_known or value is None or isinstance(value, (int, float, str)):
            _add(there, name, attributes, found)
    for name, value in inspect.getclosurevars(function).nonlocals.items():
        if type(value) in (dict, list, set):
            raise NotPlain
        if not is_known and name != "__class__":
            _follow(value, attributes, found)
    return found


@functools.lru_cache(1024)
def _names(code: types.CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """The globals that code reads, and the names of all that it reads of anything; functions inside, too."""
    outside = {str(x.argval) for x in dis.get_instructions(code) if x.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    inside = [_names(x) for x in code.co_consts if isinstance(x, types.CodeType)]
    names = [x for _, x in inside]
    return frozenset(outside.union(*(x for x, _ in inside))), frozenset(code.co_names).union(*names)


def _package(name: str | None) -> str:
    return (name or "").split(".")[0]


def _add(there: Mapping[str, Any], name: str, names: frozenset[str], found: Places) -> None:
    if (id(there), name) not in found:
        found[id(there), name] = there, name
        if name in there:
            _follow(there[name], names, found)


def _follow(value: Any, names: frozenset[str], found: Places) -> None:
    """Adds what modules and classes have under these names; all else that is no constant is not plain."""
    if isinstance(value, types.ModuleType):
        if _package(value.__name__) not in _KNOWN:
            for name in names & vars(value).keys():
                _add(vars(value), name, names, found)
    elif isinstance(value, type):
        if _package(value.__module__) not in _KNOWN and not issubclass(value, enum.Enum):
            for name in names & set(dir(value)):
                for there in namespaces(value, name):
                    _add(there, name, names, found)
    elif not (is_constant(value) or hasattr(type(value), "__get__") or _is_known(value)):
        raise NotPlain


def _is_known(value: Any) -> bool:
    is_changed = isinstance(value, (nn.Module, torch.Tensor))
    return not is_changed and _package(type(value).__module__) in _KNOWN_OBJECTS
