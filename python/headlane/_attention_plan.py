"""The plan of an attention call."""

from __future__ import annotations

from typing import Any, NamedTuple

from . import _core
from ._types import ScoreOptions, Unpack


class AttentionPlan(NamedTuple):
    """How attention is computed for given arguments, and the memory it needs."""

    isa: str  # the instruction set
    tile_rows: int  # query rows in registers at a time
    key_block: int  # keys of a block: blocks begin at multiples of it
    rows_of_task: int  # query rows that a task processes at a time
    key_parts: int  # tasks that share the keys of a row
    tasks: int  # tasks that may run in parallel
    threads: int  # threads that share the tasks
    packs_keys: bool  # whether keys are packed first, or read in place
    packs_values: bool  # whether values are
    workspace_bytes: int  # memory besides inputs and outputs


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
    """How scaled_dot_product_attention computes a call, or attention_over_cache.

    Depends only on shapes, strides and options. With several batch axes it is the plan for one position
    along all but the last.

    Args:
        query: As in scaled_dot_product_attention.
        key: As in scaled_dot_product_attention, or a KvCache.
        value: As in scaled_dot_product_attention, or the numbers of sequences of the KvCache.
        attn_mask: As in scaled_dot_product_attention.
        enable_gqa: As in scaled_dot_product_attention.
        num_threads: Maximum number of threads; num_threads() if None or 0.
        **options: Those of scaled_dot_product_attention.

    Returns:
        The plan.
    """
    return AttentionPlan(
        *_core.plan_attention(query, key, value, attn_mask, enable_gqa, options, num_threads)
    )
