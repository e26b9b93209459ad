"""Modules that run as a plan."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.compiler import is_compiling

from ._graph import Input, Pairs, dtype_of
from ._modules import Replaced
from ._nodes import NotPlain
from ._plan import Plan
from ._state import is_plain
from ._tried import Tried


class FusedState:
    """The plans of a module, for each kind of arguments. They are not copied with the module but made again."""

    __slots__ = ("dtype", "plans", "stale")

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.plans: dict[Any, Plan | None] = {}
        self.stale = False

    def __deepcopy__(self, memo: Any) -> FusedState:
        return FusedState(self.dtype)

    def __reduce__(self) -> Any:
        return FusedState, (self.dtype,)


_KINDS = 16  # of arguments, for which a module has a plan
_ROUNDINGS = 256  # by as many eps results may differ, those of integers too
_CONSTANTS = (type(None), bool, int, float, str)


def _input(x: Any, dtype: torch.dtype) -> Any:
    """What a plan knows of an argument; NotPlain if there can be none."""
    if is_plain(x, dtype):
        return Input(x.dim())
    if type(x) is torch.Tensor and x.dtype is not dtype and is_plain(x, x.dtype):
        return Input(None)
    if type(x) in _CONSTANTS:
        return x
    if type(x) is tuple:
        return tuple(_input(one, dtype) for one in x)
    if type(x).__module__ == "transformers.cache_utils":
        if not _is_pair(x):
            return Input(type(x))
        return Input(Pairs(type(x), type(x.self_attention_cache), tuple(x.is_updated.items())))
    raise NotPlain


def _is_pair(cache: Any) -> bool:
    """Whether it is an EncoderDecoderCache."""
    return hasattr(cache, "cross_attention_cache")


def _key_of(x: Any) -> Any:
    """1 and 1.0 are equal, and may not be the same to the code."""
    return tuple(map(_key_of, x)) if type(x) is tuple else (type(x), x)


def _inputs_of(given: Iterable[Any]) -> list[Any]:
    """Tensors and caches, those in tuples too, and both of a pair of caches."""
    found: list[Any] = []
    for x in given:
        if type(x) is tuple:
            found += _inputs_of(x)
        elif isinstance(x, torch.Tensor):
            found.append(x)
        elif type(x) not in _CONSTANTS:
            found += (x.self_attention_cache, x.cross_attention_cache) if _is_pair(x) else (x,)
    return found


def _caches_in(given: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for x in given:
        if type(x) is tuple:
            found += _caches_in(x)
        elif type(x) not in _CONSTANTS and not isinstance(x, torch.Tensor):
            found.append(x)
    return found


def _with_trials(x: Any, trials: dict[int, Any]) -> Any:
    """An argument with copies in place of caches, by their ids."""
    return tuple(_with_trials(one, trials) for one in x) if type(x) is tuple else trials.get(id(x), x)


# Arguments that a layer may need although they have a default.
_NEEDED = {"position_embeddings": (Input(3), Input(3)), "position_bias": Input(4)}


class Fused(Replaced):
    """A module with plans."""

    @classmethod
    def can_adopt(cls, module: nn.Module) -> bool:
        """Whether the code of a module is plain for tensors [batch, length, width], and tables of positions if it
        has such an argument, and nothing else.
        """
        dtype = dtype_of(module)
        if dtype is None:
            return False
        parameters = list(inspect.signature(type(module).forward).parameters.values())[1:]
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        needed = [x for x in parameters if x.default is x.empty and x.kind in positional]
        given = tuple(_NEEDED.get(x.name, Input(3)) for x in needed)
        others = {x.name for x in parameters} - {x.name for x in needed}
        options = {name: x for name, x in _NEEDED.items() if name in others}
        return any(Plan.of(module, dtype, given, x) is not None for x in ({}, options))

    @classmethod
    def adopt(cls, module: nn.Module, state: Any = None) -> None:
        super().adopt(module, FusedState(dtype_of(module)))

    def forward(self, *arguments: Any, **options: Any) -> Any:
        state = self._headlane
        if self.training or state.stale or is_compiling():
            return super().forward(*arguments, **options)
        given = (*arguments, *options.values())
        try:
            inputs = [_input(x, state.dtype) for x in given]
        except NotPlain:
            return super().forward(*arguments, **options)
        key = (len(arguments), *options, *map(_key_of, inputs))
        plan = state.plans.get(key)
        if plan is None and key not in state.plans and len(state.plans) < _KINDS:
            return self._first_call(key, inputs, arguments, options)
        if plan is not None and plan.applies():
            result = plan.run(_inputs_of(given))
            if result is not NotImplemented:
                return result
        return super().forward(*arguments, **options)

    def _first_call(self, key: Any, inputs: list[Any], arguments: Any, options: dict[str, Any]) -> Any:
        """A plan is kept if it computes what the code does."""
        state, count = self._headlane, len(arguments)
        plan = Plan.of(self, state.dtype, tuple(inputs[:count]), dict(zip(options, inputs[count:])))
        if plan is None:
            state.plans[key] = None
        given = (*arguments, *options.values())
        caches = [Tried(x) for x in _caches_in(given)]
        if plan is None or not plan.applies() or not all(x.is_possible for x in caches):
            return super().forward(*arguments, **options)
        trials = {id(x.cache): x.trial for x in caches}
        result = super().forward(
            *(_with_trials(x, trials) for x in arguments),
            **{name: _with_trials(x, trials) for name, x in options.items()},
        )
        try:
            made = plan.run(_inputs_of(given))
        except Exception:  # of something in the plan that the code does not do
            made = None
        is_kept = _is_close(made, result) and all(_is_close(*x.new_entries()) for x in caches)
        state.plans[key] = plan if is_kept else None
        if is_kept:
            return made
        for x in caches:
            x.take_trial()
        return result

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if not name.startswith("_") and name != "training":
            self._headlane.stale = True  # the code may read it


def _is_close(made: Any, result: Any) -> bool:
    """Whether two results differ by roundings, of numbers as large as the largest."""
    if isinstance(made, (tuple, list, OrderedDict)):
        if type(result) is not type(made) or len(result) != len(made):
            return False
        pairs = zip(*(x.values() if isinstance(x, OrderedDict) else x for x in (made, result)))
        return all((one is other is None) or _is_close(one, other) for one, other in pairs)
    if not type(made) is type(result) is torch.Tensor:
        return False
    if result.dtype is not made.dtype or result.shape != made.shape:
        return False
    finite, theirs = made.isfinite(), result.isfinite()
    if not finite.equal(theirs):
        return False
    one, other = made[finite].double(), result[finite].double()
    limit = _ROUNDINGS * torch.finfo(made.dtype).eps * other.abs().max() if len(other) else 0
    return bool(((one - other).abs() <= limit).all())
