"""torch.ops.headlane: the functions that models need as operators of PyTorch, which torch.compile keeps in its graph.

Importing this registers them. Outside of torch.compile the functions of headlane itself cost less per call.
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
) -> torch.Tensor:
    """headlane.scaled_dot_product_attention as an operator; it has no gradient."""
    return headlane.scaled_dot_product_attention(
        query, key, value, attn_mask, 0.0, is_causal, scale, enable_gqa, causal_offset=causal_offset
    )


@scaled_dot_product_attention.register_fake
def _(query, key, value, attn_mask=None, is_causal=False, scale=None, enable_gqa=False, causal_offset=0):
    inner = 3 if enable_gqa else 2  # with grouped heads query's count
    batch = torch.broadcast_shapes(*(x.shape[:-inner] for x in (query, key, value)))
    return query.new_empty((*batch, *query.shape[-inner:-1], value.shape[-1]))
