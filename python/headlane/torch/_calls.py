"""Calls of PyTorch's functions in code of a model that are computed by headlane."""

from __future__ import annotations

import copy
import types
from functools import partial
from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch.compiler import is_compiling
from torch.nn.attention import SDPBackend
from torch.overrides import TorchFunctionMode

import headlane

from ._modules import Replaced, WithWeights
from ._packed import NAMES
from ._state import is_plain, is_plain_traced, threads
from ._weight import PackedWeight


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    if is_compiling():
        return torch.ops.headlane.scaled_dot_product_attention(
            query, key, value, mask, is_causal, scale, enable_gqa
        )
    return headlane.scaled_dot_product_attention(
        query, key, value, mask, 0.0, is_causal, scale, enable_gqa, out=out, num_threads=threads()
    )


def _as_laid_out(query: torch.Tensor, *given: Any) -> torch.Tensor:
    """attend() whose result lies in memory as PyTorch's: of flash attention like the query."""
    if is_compiling():
        result = attend(query, *given)
        return torch.empty_like(query).copy_(result) if result.shape == query.shape else result
    key, value, mask, is_causal, scale, enable_gqa = given
    kind = torch._fused_sdp_choice(
        query, key, value, mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa
    )
    is_flash = kind == SDPBackend.FLASH_ATTENTION.value
    return attend(query, *given, out=torch.empty_like(query) if is_flash else None)


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    plain = is_plain_traced if is_compiling() else is_plain
    dtype = query.dtype
    if (
        dropout_p == 0
        and dtype in NAMES
        and query.dim() >= 3
        and all(plain(x, dtype) for x in (query, key, value))
        and (attn_mask is None or (not is_causal and plain(attn_mask, attn_mask.dtype)))
    ):
        return _as_laid_out(query, key, value, attn_mask, is_causal, scale, enable_gqa)
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def _takes(x: torch.Tensor) -> bool:
    """Whether the kernels take a tensor in the middle of code, of which all else is PyTorch's, as before."""
    return x.dtype in NAMES and is_plain(x, x.dtype) and x.layout is torch.strided


def _activated(function: Any, ours: Any, input: Any, *given: Any, **options: Any) -> Any:  # noqa: A002
    form = {name: x for name, x in options.items() if (name, x) != ("inplace", False)}
    if given or form.keys() - {"approximate"} or not _takes(input):
        return function(input, *given, **options)
    return ours(input, **form, out=torch.empty_like(input), num_threads=threads())  # with PyTorch's strides


def _converted(function: Any, x: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
    """float(), type() and to(), by which code multiplies by a weight of 16 bits in float32."""
    given = [*arguments, *options.values()]
    is_wide = len(given) == 1 and given[0] is torch.float32 or not given and function is torch.Tensor.float
    wide = x.widened() if is_wide and isinstance(x, PackedWeight) and not x.wants_gradient() else None
    return function(x, *arguments, **options) if wide is None else wide


_ATTENTION = {F.scaled_dot_product_attention: _attention}
# Of these PyTorch's have other bits for the last elements of a tensor.
_KINDS: dict[Any, Any] = {
    torch.sigmoid: headlane.sigmoid,
    torch.Tensor.sigmoid: headlane.sigmoid,
    F.silu: headlane.silu,
    F.gelu: headlane.gelu,
    torch.tanh: headlane.tanh,
    torch.Tensor.tanh: headlane.tanh,
}
ACTIVATIONS = {function: partial(_activated, function, ours) for function, ours in _KINDS.items()}
_FUNCTIONS = _ATTENTION | ACTIVATIONS
_CODE = ACTIVATIONS | {
    x: partial(_converted, x) for x in (torch.Tensor.float, torch.Tensor.type, torch.Tensor.to)
}


class Intercept(TorchFunctionMode):
    """Calls of some functions go to others."""

    def __init__(self, ours: dict[Any, Callable[..., Any]]) -> None:
        super().__init__()
        self.ours = ours

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in self.ours:
            return self.ours[func](*args, **kwargs)
        if func is torch.Tensor.unflatten:  # whose super() torch.compile cannot trace
            func = torch.unflatten
        return func(*args, **kwargs)


def _names(kind: type, function: str) -> bool:
    """Whether code of the class, but PyTorch's own, names a function."""
    for base in kind.__mro__:
        if base.__module__.startswith("torch.nn.") or base is object:
            continue
        codes = [x.__code__ for x in vars(base).values() if isinstance(x, types.FunctionType)]
        while codes:
            code = codes.pop()
            if function in code.co_names:
                return True
            codes += [x for x in code.co_consts if isinstance(x, types.CodeType)]
    return False


def calls_attention(module: nn.Module) -> bool:
    """Whether its code names the function, or diffusers' for it; or the code of what stands in an attribute to be
    called, such as diffusers' processors.
    """
    helpers = [x for x in vars(module).values() if callable(x) and not isinstance(x, type)]
    helpers += [x for x in module.children() if type(x).__call__ is not nn.Module.__call__]
    kinds = {type(module), *map(type, helpers)}
    return any(
        _names(kind, name)
        for kind in kinds
        for name in ("scaled_dot_product_attention", "dispatch_attention_fn")
    )


def calls_activation(module: nn.Module) -> bool:
    """Whether its code names one."""
    return any(_names(type(module), function.__name__) for function in ACTIVATIONS)


class _Products(TorchFunctionMode):
    """Sees the weights of torch.nn.functional.linear."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: list[torch.Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.linear and len(args) > 1:
            self.weights.append(args[1])
        return func(*args, **(kwargs or {}))


def multiplied_by(module: nn.Module) -> str | None:
    """The name of the weight by which the code of a module multiplies its rows, such as a router of experts; found
    by a call of a copy with two of them.
    """
    weights = {name: x for name, x in module._parameters.items() if x is not None and x.dim() == 2}
    if len(weights) != 1 or module._modules or not _names(type(module), "linear"):
        return None
    ((name, weight),) = weights.items()
    if type(weight) is not nn.Parameter or weight.dtype not in NAMES or weight.device.type != "cpu":
        return None
    rows = torch.ones(1, 2, weight.shape[1], dtype=weight.dtype)
    for given in (rows, rows[0]):
        try:
            probe = copy.deepcopy(module)
            with torch.no_grad(), _Products() as products:
                probe(given)
        except Exception:
            continue
        if any(x.dtype in NAMES and x.float().equal(weight.float()) for x in products.weights):
            return name
    return None


class CallsFunctions(Replaced):
    """A module whose code calls scaled_dot_product_attention or activations."""

    def forward(self, *arguments: Any, **options: Any) -> Any:
        if self.training:
            return super().forward(*arguments, **options)
        with Intercept(_ATTENTION if is_compiling() else _FUNCTIONS):
            return super().forward(*arguments, **options)


class CallsLinear(WithWeights):
    """A module whose code calls torch.nn.functional.linear with a weight of its own, which is packed. Activations
    that it calls are headlane's, too. Its state is whether calls have to be intercepted.
    """

    @classmethod
    def adopt(cls, module: nn.Module, state: Any = None) -> None:
        is_wide = all(x is None or x.dtype is torch.float32 for x in module._parameters.values())
        super().adopt(module, not is_wide or calls_activation(module))

    def forward(self, *arguments: Any, **options: Any) -> Any:
        if self.training:
            with torch._C.DisableTorchFunctionSubclass():
                return super().forward(*arguments, **options)
        if not self._headlane or is_compiling():
            return super().forward(*arguments, **options)
        with Intercept(_CODE):
            return super().forward(*arguments, **options)
