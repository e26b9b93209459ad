"""Attention probabilities, and their sums for each key."""

from __future__ import annotations

from typing import Any, overload

from . import _core
from ._types import Array, No, ScoreCallOptions, ScoreOptions, Unpack, Yes


@overload
def attention_weights(
    query: Array,
    key: Any,
    attn_mask: Any = None,
    *,
    enable_gqa: bool = False,
    return_lse: No = False,
    **options: Unpack[ScoreCallOptions],
) -> Array: ...


@overload
def attention_weights(
    query: Array,
    key: Any,
    attn_mask: Any = None,
    *,
    enable_gqa: bool = False,
    return_lse: Yes,
    **options: Unpack[ScoreCallOptions],
) -> tuple[Array, Array]: ...


@overload
def attention_weights(
    query: Array,
    key: Any,
    attn_mask: Any = None,
    *,
    enable_gqa: bool = False,
    return_lse: bool = False,
    **options: Unpack[ScoreCallOptions],
) -> Array | tuple[Array, Array]: ...


def attention_weights(
    query: Array,
    key: Any,
    attn_mask: Any = None,
    *,
    enable_gqa: bool = False,
    return_lse: bool = False,
    out: Any = None,
    num_threads: int | None = None,
    **options: Unpack[ScoreOptions],
) -> Array | tuple[Array, Array]:
    """softmax(scale * query @ key.T): the attention probabilities.

    For some of the heads or queries pass slices, and causal_offset plus the index of the first query.

    Args:
        query: [..., heads, q_length, dim].
        key: [..., heads, kv_length, dim].
        attn_mask: As in scaled_dot_product_attention.
        enable_gqa: As in scaled_dot_product_attention.
        return_lse: Return (weights, lse).
        out: Where to write the result; its last axis must be dense, and it must not overlap any argument.
        num_threads: Maximum number of threads; num_threads() if None or 0.
        **options: Those of scaled_dot_product_attention, but query_starts and key_starts.

    Returns:
        [..., heads, q_length, kv_length], 0 for masked keys; with return_lse, (weights, lse).
    """
    return _core.attention_weights(query, key, attn_mask, enable_gqa, options, return_lse, out, num_threads)


def attention_key_sums(
    query: Array,
    key: Any,
    attn_mask: Any = None,
    *,
    enable_gqa: bool = False,
    out: Array | None = None,
    num_threads: int | None = None,
    **options: Unpack[ScoreOptions],
) -> Array:
    """attention_weights summed over the queries: how much attention each key receives.

    The probabilities are not stored.

    Args:
        query: [..., heads, q_length, dim].
        key: [..., heads, kv_length, dim].
        attn_mask: As in scaled_dot_product_attention.
        enable_gqa: As in scaled_dot_product_attention.
        out: Where to write the result; must not overlap any argument.
        num_threads: Maximum number of threads; num_threads() if None or 0.
        **options: Those of scaled_dot_product_attention, but query_starts and key_starts.

    Returns:
        [..., heads, kv_length].
    """
    return _core.attention_key_sums(query, key, attn_mask, enable_gqa, options, out, num_threads)
