"""Attention: over arrays, ragged batches and caches, in parts; its weights, and how it is computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, overload

from . import _core
from ._kv_cache import KvCache
from ._types import Array, InnerOptions, ScoreOptions, Sequences, Unpack


class AttentionPlan(NamedTuple):
    """How an attention will be computed, and what it needs for it."""

    isa: str  # the instruction set
    tile_rows: int  # query rows in registers at a time
    key_block: int  # the grid of keys
    rows_of_task: int  # query rows that a task takes at a time
    key_parts: int  # tasks that share the keys of a row
    tasks: int  # that may run in parallel
    threads: int  # that share them
    packs_keys: bool  # whether keys are copied to another order first, or read where they stand
    packs_values: bool
    workspace_bytes: int  # memory besides inputs and outputs


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
    return_lse: Literal[False] = False,
    return_sum: Literal[False] = False,
    out: Array | None = None,
    num_threads: int | None = None,
    **options: Unpack[InnerOptions],
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
    return_lse: Literal[True],
    return_sum: Literal[False] = False,
    out: Array | None = None,
    num_threads: int | None = None,
    **options: Unpack[InnerOptions],
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
    return_sum: Literal[True],
    out: Array | None = None,
    num_threads: int | None = None,
    **options: Unpack[InnerOptions],
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
    out: Array | None = None,
    num_threads: int | None = None,
    **options: Unpack[InnerOptions],
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
    out: Array | None = None,
    num_threads: int | None = None,
    **options: Unpack[InnerOptions],
) -> Array | tuple[Array, ...]:
    """softmax(scale * query @ key.T) @ value, as torch.nn.functional.scaled_dot_product_attention has it.

    query is [..., q_length, dim], key [..., kv_length, dim], value [..., kv_length, value_dim]; the axes before are
    batch axes and, last of them, heads, and broadcast. Nothing of size q_length x kv_length is stored.

    attn_mask broadcasts to [..., q_length, kv_length]: where a bool mask is True a key is seen, a float32 mask is
        added to the scaled scores.
    dropout_p must be 0.
    is_causal: query i sees key j only if j <= i + causal_offset. May be combined with attn_mask, which PyTorch refuses.
    scale: 1 / sqrt(dim) if None.
    enable_gqa: query may have several times as many heads as key and value.
    causal_offset: the position of the first query on the key axis: with a cache, the number of cached keys. An integer, or
        integers [batch].
    softcap: unless 0, a scaled score s becomes softcap * tanh(s / softcap) before anything is added to it (Gemma 2).
    window: (left, right): query i sees key j only if i + causal_offset - left <= j <= i + causal_offset + right; None or
        -1: not bounded on that side. Without is_causal too.
    key_lengths, query_lengths: integers [batch]: of each batch element, keys and queries from there on are padding, which
        is not read; a query that is padding gives 0. For [batch, heads, length, dim]; with fewer axes the batch is one.
    alibi_slopes: float32 [heads]; slope * (j - i - causal_offset) is added to the score of query i and key j.
    sinks: float32 [heads]; exp(sink) joins the sum of each row, as one more key without a value would.
    mask_bits: uint8, broadcasts to [..., q_length, ceil(kv_length / 8)]: a bool mask as
        numpy.packbits(mask, axis=-1, bitorder="little") packs it. May be combined with attn_mask.
    relative_bias: float32 [heads, buckets]; T5's position bias: relative_bias[head, t5_bucket(j - i - causal_offset,
        buckets, relative_max_distance, relative_bidirectional)] is added to the score.
    query_starts, key_starts: integers [sequences + 1]: a ragged batch. query, key and value are [heads, total, dim] or
        [1, heads, total, dim]; sequence s has the queries query_starts[s] ... query_starts[s + 1] - 1, and the keys
        likewise. Positions count from the sequence's first query and key, and in masks too its keys begin at 0: a mask is
        [..., total, length of the longest sequence's keys]. What is [batch] above is [sequences].
        Rows of no sequence are left alone, so undefined unless out is given.
    return_lse: gives (out, lse), lse [..., q_length] being the log of the sum of exp(score) over the keys seen.
    return_sum: gives (out, max, sum), a part for merge(): the largest score of each row, the sum of exp(score - max),
        and out not divided by it. Without sinks, which belong to merge.
    out: where to write the result; must overlap no argument.
    num_threads: for this call; num_threads() if None or 0.

    A query that sees no key gives 0, and a log-sum-exp of -inf. A key that is not seen has no influence, even if NaN.
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
    return_lse: Literal[False] = False,
    return_sum: Literal[False] = False,
    out: Array | None = None,
    num_threads: int | None = None,
    **options: Unpack[ScoreOptions],
) -> Array: ...


@overload
def attention_over_cache(
    query: Array,
    cache: KvCache,
    sequences: Sequences,
    attn_mask: Any = None,
    *,
    return_lse: Literal[True],
    return_sum: Literal[False] = False,
    out: Array | None = None,
    num_threads: int | None = None,
    **options: Unpack[ScoreOptions],
) -> tuple[Array, Array]: ...


@overload
def attention_over_cache(
    query: Array,
    cache: KvCache,
    sequences: Sequences,
    attn_mask: Any = None,
    *,
    return_lse: bool = False,
    return_sum: Literal[True],
    out: Array | None = None,
    num_threads: int | None = None,
    **options: Unpack[ScoreOptions],
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
    out: Array | None = None,
    num_threads: int | None = None,
    **options: Unpack[ScoreOptions],
) -> Array | tuple[Array, ...]: ...


def attention_over_cache(
    query: Array,
    cache: KvCache,
    sequences: Sequences,
    attn_mask: Any = None,
    *,
    return_lse: bool = False,
    return_sum: bool = False,
    out: Array | None = None,
    num_threads: int | None = None,
    **options: Unpack[ScoreOptions],
) -> Array | tuple[Array, ...]:
    """The same over keys and values in a KvCache: query [sequences, heads, q_length, dim]; for one, also [heads, q_length, dim].

    The queries are the last ones of their sequence, so that cache.append(...) and then is_causal=True is decoding or prefill in
    pieces: the first query is at number of keys - q_length + causal_offset, of each sequence. Heads are grouped if query has more than the cache.

    options: those of scaled_dot_product_attention, without query_starts and key_starts. kv_length, for masks, is that of the
    longest of the sequences. The bits are those of the same keys and values in plain arrays.
    """
    return _core.attention_over_cache(
        query, cache, sequences, attn_mask, options, return_lse, return_sum, out, num_threads
    )


@overload
def merge(
    parts: Sequence[tuple[Array, ...]],
    *,
    sinks: Any = None,
    return_lse: Literal[False] = False,
    return_sum: Literal[False] = False,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array: ...


@overload
def merge(
    parts: Sequence[tuple[Array, ...]],
    *,
    sinks: Any = None,
    return_lse: Literal[True],
    return_sum: Literal[False] = False,
    out: Array | None = None,
    num_threads: int | None = None,
) -> tuple[Array, Array]: ...


@overload
def merge(
    parts: Sequence[tuple[Array, ...]],
    *,
    sinks: Any = None,
    return_lse: bool = False,
    return_sum: Literal[True],
    out: Array | None = None,
    num_threads: int | None = None,
) -> tuple[Array, Array, Array]: ...


@overload
def merge(
    parts: Sequence[tuple[Array, ...]],
    *,
    sinks: Any = None,
    return_lse: bool = False,
    return_sum: bool = False,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array | tuple[Array, ...]: ...


def merge(
    parts: Sequence[tuple[Array, ...]],
    *,
    sinks: Any = None,
    return_lse: bool = False,
    return_sum: bool = False,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array | tuple[Array, ...]:
    """Attention over the keys of all parts, which have none in common.

    parts: what scaled_dot_product_attention gave with return_lse, (out, lse), or with return_sum, (out, max, sum); in any
        mixture, all of one shape.
    sinks: float32 [heads], which the parts must not have had.
    return_lse: gives (out, lse). return_sum: gives (out, max, sum), a part again.
    out: where to write the result; must overlap no argument.

    The bits are those of attention over all keys if parts with sums are cut where keys are a multiple of 512, and each but the
    first has at most 512.
    """
    return _core.merge(parts, sinks, return_lse, return_sum, out, num_threads)


@overload
def attention_weights(
    query: Array,
    key: Any,
    attn_mask: Any = None,
    *,
    enable_gqa: bool = False,
    return_lse: Literal[False] = False,
    out: Array | None = None,
    num_threads: int | None = None,
    **options: Unpack[ScoreOptions],
) -> Array: ...


@overload
def attention_weights(
    query: Array,
    key: Any,
    attn_mask: Any = None,
    *,
    enable_gqa: bool = False,
    return_lse: Literal[True],
    out: Array | None = None,
    num_threads: int | None = None,
    **options: Unpack[ScoreOptions],
) -> tuple[Array, Array]: ...


@overload
def attention_weights(
    query: Array,
    key: Any,
    attn_mask: Any = None,
    *,
    enable_gqa: bool = False,
    return_lse: bool = False,
    out: Array | None = None,
    num_threads: int | None = None,
    **options: Unpack[ScoreOptions],
) -> Array | tuple[Array, Array]: ...


def attention_weights(
    query: Array,
    key: Any,
    attn_mask: Any = None,
    *,
    enable_gqa: bool = False,
    return_lse: bool = False,
    out: Array | None = None,
    num_threads: int | None = None,
    **options: Unpack[ScoreOptions],
) -> Array | tuple[Array, Array]:
    """softmax(scale * query @ key.T): the weights [..., q_length, kv_length] themselves, 0 for a key that a query does not see.

    Take the heads and queries that are wanted by slices, with causal_offset + the first query. options: those of
    scaled_dot_product_attention, without query_starts and key_starts. The last axis of out must be dense.
    """
    return _core.attention_weights(
        query, key, attn_mask, enable_gqa, options, return_lse, out, num_threads
    )


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
    """attention_weights summed over the queries, [..., kv_length]: how much a key was looked at. Stores no weights."""
    return _core.attention_key_sums(query, key, attn_mask, enable_gqa, options, out, num_threads)


def plan_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    *,
    enable_gqa: bool = False,
    num_threads: int | None = None,
    **options: Unpack[ScoreOptions],
) -> AttentionPlan:
    """How scaled_dot_product_attention computes this; attention_over_cache, if key is a KvCache and value its sequences.

    Looks at shapes, strides and options only. With several batch axes, the plan of one step along all but the last.
    """
    return AttentionPlan(
        *_core.plan_attention(query, key, value, attn_mask, enable_gqa, options, num_threads)
    )


def t5_bucket(distance: int, buckets: int = 32, max_distance: int = 128, bidirectional: bool = True) -> int:
    """The bucket of T5's relative position bias for distance = position of the key - position of the query."""
    return _core.t5_bucket(distance, buckets, max_distance, bidirectional)
