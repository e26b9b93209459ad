"""Hugging Face transformers on headlane: importing this registers the attention implementation "headlane".

    import headlane.transformers
    model = AutoModel.from_pretrained(folder, attn_implementation="headlane")

Models must be in float32 on the CPU, and run within torch.no_grad(): there are no gradients and no dropout.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

import headlane
import headlane.torch_ops  # registers the operator used below

# What the interface may pass on that changes the result, and that headlane does not have.
_UNSUPPORTED = ("cache",)


def _with_bias(mask: torch.Tensor | None, bias: torch.Tensor, is_causal: bool) -> torch.Tensor:
    """One float mask from a model's position bias and its mask, which is causal by itself if there is none."""
    if mask is None and is_causal:
        mask = torch.ones(bias.shape[-2:], dtype=torch.bool).tril()
    if mask is None:
        return bias
    return torch.where(mask, bias, -torch.inf) if mask.dtype == torch.bool else bias + mask


def attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: torch.Tensor | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """The interface's function: [batch, heads, length, dim] in, [batch, length, heads, dim] out, no attention weights."""
    for name in _UNSUPPORTED:
        if kwargs.get(name) is not None:
            raise ValueError(
                f'attention "headlane" does not support `{name}`; use attn_implementation="eager"'
            )
    if dropout:
        raise ValueError(f'attention "headlane" has no dropout ({dropout} was asked for): call model.eval()')
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    # As for "sdpa": a mask has causality and the window in it, and a single query is the newest one, which sees everything.
    window_left, offset = -1, 0
    if sliding_window is not None and is_causal and attention_mask is None:
        window_left, offset = sliding_window - 1, key.shape[2] - 1 if query.shape[2] == 1 else 0
    is_causal = bool(is_causal) and attention_mask is None and query.shape[2] > 1
    if position_bias is not None:
        attention_mask, is_causal = _with_bias(attention_mask, position_bias, is_causal), False
    enable_gqa = query.shape[1] != key.shape[1]

    softcap = softcap or 0.0
    if torch.compiler.is_compiling():
        result = torch.ops.headlane.scaled_dot_product_attention(
            query,
            key,
            value,
            attention_mask,
            is_causal,
            scaling,
            enable_gqa,
            offset,
            softcap,
            window_left,
            sinks=s_aux,
        )
        return result.transpose(1, 2).contiguous(), None
    batch = torch.broadcast_shapes(*(x.shape[:1] for x in (query, key, value)))
    result = query.new_empty((*batch, query.shape[2], query.shape[1], value.shape[3]))
    headlane.scaled_dot_product_attention(
        query,
        key,
        value,
        attention_mask,
        is_causal=is_causal,
        scale=scaling,
        enable_gqa=enable_gqa,
        causal_offset=offset,
        softcap=softcap,
        window=(window_left, None),
        sinks=s_aux,
        out=result.transpose(1, 2),
    )
    return result, None


AttentionInterface.register("headlane", attention_forward)
AttentionMaskInterface.register("headlane", sdpa_mask)
