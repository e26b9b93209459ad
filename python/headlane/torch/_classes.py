"""Classes that are made of a kind of replaced module and the class that a module has."""

from __future__ import annotations

import functools
import inspect
import types
from typing import Any


@functools.cache
def class_of(kind: type, original: type) -> type:
    """The class `original` with the methods of `kind`, under its own name."""
    names: dict[str, Any] = {
        "headlane_kind": kind,
        "headlane_original": original,
        "__module__": original.__module__,
        "__qualname__": original.__qualname__,
        "__doc__": original.__doc__,
    }
    if hasattr(kind, "forward"):
        names["forward"] = _copy_of(kind.forward, original.forward)
    if hasattr(original, "__deepcopy__"):
        names["__deepcopy__"] = kind._deepcopy  # type: ignore[attr-defined]
    return type(original.__name__, (kind, original), names)


def _copy_of(function: Any, original: Any) -> Any:
    """A function that has the name and the signature of the original."""
    made = types.FunctionType(function.__code__, function.__globals__, closure=function.__closure__)
    made.__defaults__, made.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    return functools.update_wrapper(made, original)


def needs_arguments(original: type) -> bool:
    """Whether a call of a class without arguments would fail."""
    try:
        inspect.signature(original).bind()
    except TypeError:
        return True
    return False
