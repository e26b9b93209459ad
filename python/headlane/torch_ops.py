"""torch.ops.headlane: functions as PyTorch operators, which torch.compile keeps in its graph.

Importing this module registers them. Outside of torch.compile, the functions of headlane have less
overhead.
"""

from typing import Optional

import torch

import headlane


@torch.library.custom_op("headlane::scaled_dot_product_attention", mutates_args=())
def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: Optional[torch.Tensor] = None,
    is_causal: bool = False,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
    causal_offset: int = 0,
    softcap: float = 0.0,
    window_left: int = -1,
    window_right: int = -1,
    key_lengths: Optional[torch.Tensor] = None,
    query_lengths: Optional[torch.Tensor] = None,
    causal_offsets: Optional[torch.Tensor] = None,
    alibi_slopes: Optional[torch.Tensor] = None,
    sinks: Optional[torch.Tensor] = None,
    mask_bits: Optional[torch.Tensor] = None,
    relative_bias: Optional[torch.Tensor] = None,
    relative_max_distance: int = 128,
    relative_bidirectional: bool = True,
    query_starts: Optional[torch.Tensor] = None,
    key_starts: Optional[torch.Tensor] = None,
) -> torch.Tensor:
    """headlane.scaled_dot_product_attention as an operator, without a gradient.

    Each parameter has one type: causal_offsets [batch] is a causal_offset for each batch element, and
    window_left and window_right are the window, -1 for unbounded. The others are those of
    headlane.scaled_dot_product_attention.
    """
    return headlane.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask,
        0.0,
        is_causal,
        scale,
        enable_gqa,
        causal_offset=causal_offset if causal_offsets is None else causal_offsets,
        softcap=softcap,
        window=(window_left, window_right),
        key_lengths=key_lengths,
        query_lengths=query_lengths,
        alibi_slopes=alibi_slopes,
        sinks=sinks,
        mask_bits=mask_bits,
        relative_bias=relative_bias,
        relative_max_distance=relative_max_distance,
        relative_bidirectional=relative_bidirectional,
        query_starts=query_starts,
        key_starts=key_starts,
    )


@scaled_dot_product_attention.register_fake
def _(query, key, value, attn_mask=None, is_causal=False, scale=None, enable_gqa=False, *others):
    inner = 3 if enable_gqa else 2  # grouped heads do not broadcast: the result has those of query
    batch = torch.broadcast_shapes(*(x.shape[:-inner] for x in (query, key, value)))
    return query.new_empty((*batch, *query.shape[-inner:-1], value.shape[-1]))
