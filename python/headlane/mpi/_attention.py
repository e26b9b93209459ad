"""Attention over sequences and caches that are cut over ranks."""

from __future__ import annotations

from typing import Any

from .. import _core
from .._types import Array, InnerOptions, ScoreOptions, Sequences, Unpack
from ._communicator import Communicator
from ._kv_cache import KvCache
from ._sequence_cut import SequenceCut


def attention(
    comm: Communicator,
    query: Array,
    key: Any,
    value: Any,
    *,
    keys: SequenceCut,
    queries: SequenceCut | None = None,
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    out: Any = None,
    num_threads: int | None = None,
    **options: Unpack[InnerOptions],
) -> Array | tuple[Array, Array]:
    """scaled_dot_product_attention over a sequence that is cut over ranks, with the same bits.

    Keys and values travel around the ranks, or partial results do, whichever is fewer bytes. Collective.

    Args:
        comm: The ranks.
        query: [..., heads, rows, dim]: the rows that this rank has; without `queries` all of them.
        key: [..., heads, keys.length_of(rank), dim].
        value: [..., heads, keys.length_of(rank), value_dim].
        keys: How the keys are cut.
        queries: How the queries are cut. None: every rank has all of them and receives all results.
        attn_mask: As in scaled_dot_product_attention, with a row for each of the rank's own queries and a
            column for each key of the sequence.
        is_causal: As in scaled_dot_product_attention, over positions of the whole sequence.
        scale: As in scaled_dot_product_attention.
        enable_gqa: As in scaled_dot_product_attention.
        return_lse: Return (out, lse).
        out: Where to write the result; must not overlap any argument.
        num_threads: Maximum number of threads of this rank; num_threads() if None or 0.
        **options: Those of scaled_dot_product_attention, for the whole sequence, but query_starts and
            key_starts.

    Returns:
        out [..., heads, rows, value_dim], of the rank's own queries.
    """
    return _core.mpi_attention(
        comm,
        query,
        key,
        value,
        keys,
        queries,
        attn_mask,
        is_causal,
        scale,
        enable_gqa,
        options,
        return_lse,
        out,
        num_threads,
    )


def attention_over_cache(
    comm: Communicator,
    query: Array,
    cache: KvCache,
    sequences: Sequences,
    attn_mask: Any = None,
    *,
    return_lse: bool = False,
    out: Any = None,
    num_threads: int | None = None,
    **options: Unpack[ScoreOptions],
) -> Array | tuple[Array, Array]:
    """headlane.attention_over_cache over a cache that is cut over ranks, with the same bits.

    Every rank has all queries and receives all results. Collective.

    Args:
        comm: The ranks.
        query: As in headlane.attention_over_cache.
        cache: The keys and values.
        sequences: As in headlane.attention_over_cache.
        attn_mask: As in headlane.attention_over_cache.
        return_lse: Return (out, lse).
        out: Where to write the result; must not overlap any argument.
        num_threads: Maximum number of threads of this rank; num_threads() if None or 0.
        **options: Those of headlane.attention_over_cache.
    """
    return _core.mpi_attention_over_cache(
        comm, query, cache, sequences, attn_mask, options, return_lse, out, num_threads
    )
