"""Scaled dot-product attention, over arrays and over a KvCache."""

from __future__ import annotations

from typing import Any, overload

from . import _core
from ._kv_cache import KvCache
from ._types import (
    Array,
    InnerCallOptions,
    InnerOptions,
    No,
    ScoreCallOptions,
    ScoreOptions,
    Sequences,
    Unpack,
    Yes,
)


@overload
def scaled_dot_product_attention(
    query: Array,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    return_lse: No = False,
    return_sum: No = False,
    **options: Unpack[InnerCallOptions],
) -> Array: ...


@overload
def scaled_dot_product_attention(
    query: Array,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    return_lse: Yes,
    return_sum: No = False,
    **options: Unpack[InnerCallOptions],
) -> tuple[Array, Array]: ...


@overload
def scaled_dot_product_attention(
    query: Array,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    return_lse: bool = False,
    return_sum: Yes,
    **options: Unpack[InnerCallOptions],
) -> tuple[Array, Array, Array]: ...


@overload
def scaled_dot_product_attention(
    query: Array,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    return_lse: bool = False,
    return_sum: bool = False,
    **options: Unpack[InnerCallOptions],
) -> Array | tuple[Array, ...]: ...


def scaled_dot_product_attention(
    query: Array,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    return_lse: bool = False,
    return_sum: bool = False,
    out: Any = None,
    num_threads: int | None = None,
    **options: Unpack[InnerOptions],
) -> Array | tuple[Array, ...]:
    """softmax(scale * query @ key.T) @ value, as torch.nn.functional.scaled_dot_product_attention.

    Nothing of size q_length x kv_length is stored. All options combine. A key is visible to a query if
    all of is_causal, window, attn_mask, mask_bits and the lengths allow it. A masked key has no
    influence, even if NaN. A query without a visible key returns 0, and a log-sum-exp of -inf.

    In the descriptions below, i is the index of a query and j that of a key.

    Args:
        query: [..., heads, q_length, dim]. The axes before q_length broadcast; heads may be absent.
        key: [..., heads, kv_length, dim].
        value: [..., heads, kv_length, value_dim].
        attn_mask: Broadcasts to [..., heads, q_length, kv_length]. bool: keys are visible where it is
            True. float32: added to the scaled scores; -inf masks a key.
        dropout_p: Must be 0.
        is_causal: Key j is visible to query i only if j <= i + causal_offset. May be combined with
            attn_mask, unlike in PyTorch.
        scale: 1 / sqrt(dim) if None.
        enable_gqa: The heads of query may be a multiple of those of key and value.
        return_lse: Return (out, lse).
        return_sum: Return (out, max, sum), a partial result for merge(). Not together with sinks, which
            belong to merge().
        out: Where to write the result; must not overlap any argument.
        num_threads: Maximum number of threads; num_threads() if None or 0.
        causal_offset: The position of the first query on the key axis: with a cache, the number of
            cached keys. An integer, or integers [batch].
        softcap: If not 0, a scaled score s becomes softcap * tanh(s / softcap) before anything is added
            to it (Gemma 2).
        window: (left, right): key j is visible to query i only if i + causal_offset - left <= j <=
            i + causal_offset + right. None or -1: unbounded on that side. Applies without is_causal too.
        key_lengths: integers [batch], for [batch, heads, length, dim]; without a batch axis the batch is
            one. Keys from this index on are padding and are not read.
        query_lengths: integers [batch]. Queries from this index on are padding, are not read, and
            return 0.
        alibi_slopes: float32 [heads]; slope * (j - i - causal_offset) is added to the score.
        sinks: float32 [heads]; exp(sink) joins the sum of each row, like one more key without a value.
        mask_bits: uint8, broadcasts to [..., heads, q_length, ceil(kv_length / 8)]: a bool mask packed by
            numpy.packbits(mask, axis=-1, bitorder="little"). May be combined with attn_mask.
        relative_bias: float32 [heads, buckets], T5's position bias: adds relative_bias[head, bucket] to
            the score, where bucket is t5_bucket(j - i - causal_offset, buckets, relative_max_distance,
            relative_bidirectional).
        relative_max_distance: See relative_bias; 128 by default.
        relative_bidirectional: See relative_bias; True by default.
        query_starts: integers [sequences + 1], with key_starts: a variable-length batch (cu_seqlens).
            query, key and value are [heads, total, dim] or [1, heads, total, dim]; sequence s has the
            queries query_starts[s] to query_starts[s + 1] - 1. Positions count from the first query and
            the first key of the sequence; a mask is [..., total, keys of the longest sequence]. Options
            of shape [batch] are [sequences]. Rows of no sequence are left alone: undefined, unless out
            is given.
        key_starts: integers [sequences + 1]: the keys of each sequence, likewise.

    Returns:
        out [..., heads, q_length, value_dim]. With return_lse, (out, lse), where lse [..., heads,
        q_length] is the logarithm of the sum of exp(score) over the visible keys. With return_sum, (out,
        max, sum): the largest score of each row, the sum of exp(score - max), and out not divided by it.
    """
    return _core.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask,
        dropout_p,
        is_causal,
        scale,
        enable_gqa,
        options,
        return_lse,
        return_sum,
        out,
        num_threads,
    )


@overload
def attention_over_cache(
    query: Array,
    cache: KvCache,
    sequences: Sequences,
    attn_mask: Any = None,
    *,
    return_lse: No = False,
    return_sum: No = False,
    **options: Unpack[ScoreCallOptions],
) -> Array: ...


@overload
def attention_over_cache(
    query: Array,
    cache: KvCache,
    sequences: Sequences,
    attn_mask: Any = None,
    *,
    return_lse: Yes,
    return_sum: No = False,
    **options: Unpack[ScoreCallOptions],
) -> tuple[Array, Array]: ...


@overload
def attention_over_cache(
    query: Array,
    cache: KvCache,
    sequences: Sequences,
    attn_mask: Any = None,
    *,
    return_lse: bool = False,
    return_sum: Yes,
    **options: Unpack[ScoreCallOptions],
) -> tuple[Array, Array, Array]: ...


@overload
def attention_over_cache(
    query: Array,
    cache: KvCache,
    sequences: Sequences,
    attn_mask: Any = None,
    *,
    return_lse: bool = False,
    return_sum: bool = False,
    **options: Unpack[ScoreCallOptions],
) -> Array | tuple[Array, ...]: ...


def attention_over_cache(
    query: Array,
    cache: KvCache,
    sequences: Sequences,
    attn_mask: Any = None,
    *,
    return_lse: bool = False,
    return_sum: bool = False,
    out: Any = None,
    num_threads: int | None = None,
    **options: Unpack[ScoreOptions],
) -> Array | tuple[Array, ...]:
    """scaled_dot_product_attention over keys and values in a KvCache.

    The queries are the last ones of their sequence: the first one is at position number of keys -
    number of queries + causal_offset, with the numbers of that sequence, key_lengths and query_lengths
    included. So cache.append(...) followed by is_causal=True is decoding, or prefill in
    chunks. The result is bit-identical to that over the same keys and values in plain arrays.

    Args:
        query: [sequences, heads, q_length, dim], or for one sequence [heads, q_length, dim]. Its heads
            are a multiple of those of the cache.
        cache: The keys and values.
        sequences: The number of the sequence of each batch element of query.
        attn_mask: As in scaled_dot_product_attention; kv_length is the length of the longest sequence.
        return_lse: As in scaled_dot_product_attention.
        return_sum: As in scaled_dot_product_attention.
        out: Where to write the result; must not overlap any argument.
        num_threads: Maximum number of threads; num_threads() if None or 0.
        **options: Those of scaled_dot_product_attention, but query_starts and key_starts.

    Returns:
        As scaled_dot_product_attention.
    """
    return _core.attention_over_cache(
        query, cache, sequences, attn_mask, options, return_lse, return_sum, out, num_threads
    )
