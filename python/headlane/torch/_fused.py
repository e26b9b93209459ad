"""Modules that run as a plan."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.compiler import is_compiling

from ._arguments import Input, Shared, caches_in, input_of, key_of, places_of, with_trials
from ._delta import is_filter
from ._experts import AnyExperts, is_mixture
from ._modules import Linear, Replaced
from ._nodes import NotPlain
from ._norms import Norm
from ._plan import Plan
from ._state import is_watched
from ._tried import Repeated, Seen, tried
from ._with_states import has_state


class FusedState:
    """The plans of a module, for each kind of arguments. They are not copied with the module but made again. Without
    a type there are none.
    """

    __slots__ = ("asks_if_single", "dtype", "plans", "stale", "with_states")

    def __init__(self, dtype: torch.dtype | None) -> None:
        self.dtype: Any = dtype
        self.asks_if_single = False  # the code, if there is one token
        self.with_states: list[int] = []  # layers of the cache, of which it asks for a state then, too
        self.plans: dict[Any, Plan | None] = {}
        self.stale = dtype is None

    def __deepcopy__(self, memo: Any) -> FusedState:
        return FusedState(self.dtype)

    def __reduce__(self) -> Any:
        return FusedState, (self.dtype,)


_KINDS = 16  # of arguments, for which a module has a plan
# By as many eps results may differ, those of integers too; and by no more than this, in 16 bits.
_ROUNDINGS = 256
_MOST, _MOST_IN_MEAN = 1 / 8, 1 / 32

# Arguments that a layer may need although they have a default.
_NEEDED = {
    "position_embeddings": (Input(3), Input(3)),
    "position_bias": Input(4),
    "position_ids": Input(None),
    "per_layer_input": Input(3),
    "shared_kv_states": Input(Shared(dict, None)),
}
_COMPLEX = {**_NEEDED, "position_embeddings": Input("complex")}


class Fused(Replaced):
    """A module with plans."""

    has_plans = True

    @classmethod
    def can_adopt(cls, module: nn.Module) -> bool:
        """Whether the code of a module is plain for tensors [batch, length, width], and tables of positions if it
        has such an argument, and nothing else.
        """
        dtype = dtype_of(module)
        has_own_pickles = type(module).__reduce__ is not object.__reduce__  # fx.GraphModule
        if dtype is None or has_own_pickles:
            return False
        parameters = list(inspect.signature(type(module).forward).parameters.values())[1:]
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        needed = [x for x in parameters if x.default is x.empty and x.kind in positional]
        others = {x.name for x in parameters} - {x.name for x in needed}
        tried: list[Any] = []
        for known in ({}, _NEEDED, _COMPLEX):
            given = tuple((known or _NEEDED).get(x.name, Input(3)) for x in needed)
            options = {name: x for name, x in known.items() if name in others}
            if (given, options) not in tried and Plan.of(module, dtype, given, options) is not None:
                return True
            tried.append((given, options))
        return False

    @classmethod
    def adopt(cls, module: nn.Module, state: Any = None) -> None:
        super().adopt(module, FusedState(dtype_of(module)))

    def forward(self, *arguments: Any, **options: Any) -> Any:
        state = self._headlane
        if self.training or state.stale or is_compiling() or is_watched():
            return super().forward(*arguments, **options)
        tensors: list[Any] = []
        try:
            inputs = [input_of(x, state.dtype, tensors) for x in (*arguments, *options.values())]
        except NotPlain:
            return super().forward(*arguments, **options)
        more = places_of(tensors), torch.is_grad_enabled()  # as code may ask
        key: tuple[Any, ...] = (len(arguments), *options, *map(key_of, inputs), *more)
        if state.asks_if_single:
            key = (*key, _is_single(tensors, state, (*arguments, *options.values())))
        plan = state.plans.get(key)
        if plan is None and key not in state.plans and len(state.plans) < _KINDS:
            return self._first_call(key, inputs, tensors, arguments, options)
        if plan is not None and plan.applies():
            result = plan.run(tensors)
            if result is not NotImplemented:
                return result
        return super().forward(*arguments, **options)

    def _first_call(
        self,
        key: tuple[Any, ...],
        inputs: list[Any],
        tensors: list[Any],
        arguments: Any,
        options: dict[str, Any],
    ) -> Any:
        """A plan is kept if it computes what the code does, by numbers that tell."""
        state, count = self._headlane, len(arguments)
        all_arguments = *arguments, *options.values()
        caches = [tried(x) for x in caches_in(all_arguments)]
        if not all(x.is_possible for x in caches):
            return super().forward(*arguments, **options)
        is_single = _is_single(tensors, state, all_arguments)
        given = tuple(inputs[:count]), dict(zip(options, inputs[count:]))
        plan = Plan.of(self, state.dtype, *given, is_single)
        if plan is not None and plan.asks_if_single and not state.asks_if_single:
            state.asks_if_single, state.with_states = True, plan.with_states
            key = (*key, _is_single(tensors, state, all_arguments))
            if key[-1] is not is_single:
                plan = Plan.of(self, state.dtype, *given, key[-1])
        if plan is None:
            state.plans[key] = None
        if plan is None or not plan.applies():
            return super().forward(*arguments, **options)
        is_telling = plan.sees_several_keys(tensors)
        trials = {id(x.cache): x.trial for x in caches}
        repeated, seen = Repeated(plan.calls), Seen(plan.whole)
        result = super().forward(
            *(with_trials(x, trials) for x in arguments),
            **{name: with_trials(x, trials) for name, x in options.items()},
        )
        if not seen.is_unchanged():  # the plan cannot be tried without another change
            state.plans[key] = None
            for x in caches:
                x.take_trial()
            return result
        try:
            with repeated:
                made = plan.run(tensors)
        except Exception:  # of something in the plan that the code does not do
            made = None
        is_right = _is_close(made, result) and all(_is_close(*x.new_entries()) for x in caches)
        if not is_right or (is_telling and _is_telling(result)):
            state.plans[key] = plan if is_right else None
        if is_right:
            return made
        for x in caches:
            x.take_trial()
        return result

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Also for copy.copy(), whose result has plans of its own: it may get other children."""
        made = super().__reduce_ex__(protocol)
        if len(made) == 3 and isinstance(made[2], dict) and isinstance(made[2].get("_headlane"), FusedState):
            made = *made[:2], {**made[2], "_headlane": FusedState(made[2]["_headlane"].dtype)}
        return made

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if not name.startswith("_") and name != "training":
            self._headlane.stale = True  # the code may read it


def _is_single(inputs: list[Any], state: FusedState, arguments: tuple[Any, ...]) -> bool:
    """Whether the sequences of the first input of the type have one token, and caches have states for them."""
    tensors = (x for x in inputs if isinstance(x, torch.Tensor) and x.dtype is state.dtype)
    first = next((x for x in tensors if x.dim() == 3), None)
    if first is None or first.shape[1] != 1:
        return False
    return all(has_state(x, layer) for layer in state.with_states for x in caches_in(arguments))


def _is_telling(result: Any) -> bool:
    """Whether not all numbers are 0, infinite or NaN, as those of other code might be, too."""
    if isinstance(result, (tuple, OrderedDict)):
        result, *_ = result.values() if isinstance(result, OrderedDict) else result
    return bool((result.isfinite() & (result != 0)).any())


def _is_close(made: Any, result: Any) -> bool:
    """Whether two results differ by roundings, of numbers as large as the largest, and in the mean."""
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
    if not len(other):
        return True
    error, size, limit = (one - other).abs(), other.abs(), _ROUNDINGS * torch.finfo(made.dtype).eps
    is_close = error.max() <= min(limit, _MOST) * size.max()
    return bool(is_close and error.mean() <= min(limit, _MOST_IN_MEAN) * size.mean())


def dtype_of(module: nn.Module) -> torch.dtype | None:
    """The type of all Linear layers in a module that may be plain, but for those beside experts."""
    parts = list(_parts(module, _is_layer(module)))
    layers = [x for x in parts if isinstance(x, Linear)]
    dtypes = {x._headlane.dtype for x in layers}
    if len(dtypes) != 1:
        return None
    others = [x for one in parts if not isinstance(one, (Linear, Norm)) for x in one._parameters.values()]
    is_known = all(x is None or x.dim() == 1 or is_filter(x) for x in others)
    return dtypes.pop() if is_known else None


def _is_layer(module: nn.Module) -> bool:
    """Whether it calls more in its own code than experts and what chooses them."""
    return any(isinstance(x, Norm) for x in module._modules.values())


def _parts(module: nn.Module, is_layer: bool = False) -> Iterator[nn.Module]:
    if (is_layer or not is_mixture(module)) and not isinstance(module, AnyExperts):
        yield module
        for child in module.children():
            yield from _parts(child)
