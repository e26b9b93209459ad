"""Modules whose code calls functions of transformers for linear attention, which headlane computes."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable

import torch
from torch import nn
from torch.compiler import is_compiling

from . import _delta, _recurrent, _scan
from ._fused import Fused, FusedState, dtype_of
from ._nodes import NotPlain, Recorded
from ._recurrent import CALLS

Function = Callable[..., Any]

_OURS: dict[str, Function] = {
    "torch_chunk_gated_delta_rule": _recurrent.delta_rule,
    "torch_recurrent_gated_delta_rule": _recurrent.delta_rule,
    "chunk_kimi_delta_attention": _recurrent.delta_rule,
    "recurrent_kimi_delta_attention": _recurrent.delta_rule,
    "causal_conv1d_fn": _recurrent.convolution,
    "causal_conv1d_update": _recurrent.convolution_update,
    "mamba2_chunk_scan": _recurrent.scan,
    "mamba2_selective_state_update": _recurrent.scan_update,
}


def _sample(name: str) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of a call, two sequences of 5 tokens."""
    random = torch.Generator().manual_seed(0)

    def some(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=random, dtype=torch.float32)

    if "conv1d" in name:
        channels = [some(2, 6, 1), some(2, 6, 4)] if name == "causal_conv1d_update" else [some(2, 6, 5)]
        return [*channels, some(6, 4), some(6)], {"activation": "silu"}
    if name == "mamba2_selective_state_update":
        of_head = [some(2, 4, 1).expand(2, 4, 3), (-some(4, 1, 1)).expand(4, 3, 8)]
        options = {"dt_bias": some(4, 1).expand(4, 3), "dt_softplus": True}
        given = [some(2, 4, 3, 8), some(2, 4, 3), *of_head, some(2, 2, 8), some(2, 2, 8)]
        return [*given, some(4, 1).expand(4, 3)], options
    if name == "mamba2_chunk_scan":
        options = {"D": some(4), "dt_bias": some(4), "dt_softplus": True, "return_final_states": True}
        options["initial_states"] = some(2, 4, 3, 8)
        return [some(2, 5, 4, 3), some(2, 5, 4), -some(4), some(2, 5, 2, 8), some(2, 5, 2, 8), 4], options
    of_row = "kimi" in name
    heads = 4 if of_row else 2
    options = {"initial_state": some(2, 4, 8, 3), "output_final_state": True, "use_qk_l2norm_in_kernel": True}
    given = [some(2, 5, heads, 8), some(2, 5, heads, 8), some(2, 5, 4, 3)]
    return given, options | {"g": -some(2, 5, 4, *[8] * of_row), "beta": some(2, 5, 4)}


def _agrees(name: str, original: Function) -> bool:
    """Whether a function computes what ours does, arguments that it writes included."""
    with torch.no_grad(), torch.autocast("cpu", enabled=False), torch.device("cpu"):
        results = []
        for function in (original, _OURS[name]):
            given, options = _sample(name)
            try:
                made = function(*given, **options)
            except Exception:
                return False
            made = made if isinstance(made, tuple) else (made,)
            results.append([*made, *(x for x in given if isinstance(x, torch.Tensor))])
        theirs, ours = results
        return all(
            isinstance(x, torch.Tensor)
            and isinstance(y, torch.Tensor)
            and x.shape == y.shape
            and torch.allclose(x, y, rtol=1e-4, atol=1e-5)
            for x, y in zip(theirs, ours, strict=True)
        )


_RECORDED: dict[str, Function] = _delta.RECORDED | _scan.RECORDED


def _not_recorded(*arguments: Any, **options: Any) -> Any:
    raise NotPlain


def _routed(original: Function, ours: Function, recorded: Function) -> Function:
    """The function, which is computed by headlane where a replaced module calls it."""

    @functools.wraps(original)
    def function(*arguments: Any, **options: Any) -> Any:
        if arguments and isinstance(arguments[0], Recorded):
            return recorded(*arguments, **options)
        if not is_compiling() and CALLS.module is not None:
            result = ours(*arguments, **options)
            if result is not None:
                return result
        return original(*arguments, **options)

    function.headlane_original = original  # type: ignore[attr-defined]
    return function


@functools.cache
def route(kind: type) -> tuple[str, ...]:
    """Has the functions that the code of a class calls computed by headlane, where they are known; their names."""
    code = inspect.unwrap(kind.forward)  # without its decorators
    known = []
    for name in getattr(getattr(code, "__code__", None), "co_names", ()):
        function = code.__globals__.get(name)
        if name not in _OURS or not callable(function):
            continue
        if not hasattr(function, "headlane_original"):
            if not _agrees(name, inspect.unwrap(function)):
                continue
            code.__globals__[name] = _routed(function, _OURS[name], _RECORDED.get(name, _not_recorded))
        known.append(name)
    return tuple(known)


class CallsRecurrent(Fused):
    """A module whose code calls linear attention, or a causal convolution. It has plans if its code is plain."""

    @classmethod
    def adopt(cls, module: nn.Module, state: Any = None) -> None:
        dtype = dtype_of(module) if cls.can_adopt(module) else None
        super(Fused, cls).adopt(module, FusedState(dtype))

    def forward(self, *arguments: Any, **options: Any) -> Any:
        if self.training or is_compiling():
            return super().forward(*arguments, **options)
        route(self.headlane_original)
        before = CALLS.module, CALLS.arguments
        CALLS.module, CALLS.arguments = self, (*arguments, *options.values())
        try:
            return super().forward(*arguments, **options)
        finally:
            CALLS.module, CALLS.arguments = before
