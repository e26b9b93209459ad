"""Calls of scaled_dot_product_attention in code of a model."""

from __future__ import annotations

import types
from typing import Any

import torch
import torch.nn.functional as F
from torch.compiler import is_compiling
from torch.overrides import TorchFunctionMode

import headlane

from ._modules import Replaced
from ._state import is_plain, is_plain_traced, threads
from ._weight import NAMES


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    if is_compiling():
        return torch.ops.headlane.scaled_dot_product_attention(
            query, key, value, mask, is_causal, scale, enable_gqa
        )
    return headlane.scaled_dot_product_attention(
        query, key, value, mask, 0.0, is_causal, scale, enable_gqa, num_threads=threads()
    )


class _Intercept(TorchFunctionMode):
    """Calls of torch.nn.functional.scaled_dot_product_attention go to headlane."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            return _attention(*args, **kwargs)
        if func is torch.Tensor.unflatten:  # whose super() torch.compile cannot trace
            func = torch.unflatten
        return func(*args, **kwargs)


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
        return attend(query, key, value, attn_mask, is_causal, scale, enable_gqa)
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def calls_attention(kind: type) -> bool:
    """Whether code of the class names scaled_dot_product_attention."""
    for base in kind.__mro__:
        if base.__module__.startswith("torch.nn.") or base is object:
            continue
        codes = [x.__code__ for x in vars(base).values() if isinstance(x, types.FunctionType)]
        while codes:
            code = codes.pop()
            if "scaled_dot_product_attention" in code.co_names:
                return True
            codes += [x for x in code.co_consts if isinstance(x, types.CodeType)]
    return False


class CallsAttention(Replaced):
    """A module whose code calls scaled_dot_product_attention."""

    def forward(self, *arguments: Any, **options: Any) -> Any:
        if self.training:
            return super().forward(*arguments, **options)
        with _Intercept():
            return super().forward(*arguments, **options)
