"""Attention in float64, with the bound on the float32 error that the C++ header states."""

from typing import NamedTuple

import headlane
import numpy as np

U = 2.0**-24  # unit roundoff of float32
BLOCK = 512


def blocks_of(length):
    return np.ceil(length / BLOCK)


def _per_batch(lengths, rank):
    """Beside scores of that many axes, of which the first is the batch if there are four."""
    return np.reshape(lengths, (-1,) + (1,) * (rank - 1)) if rank == 4 else np.asarray(lengths)[0]


def _per_head(values, rank):
    values = np.asarray(values, np.float64)
    return values[:, None, None] if rank >= 3 else values[0]


def _relative(table, distance, rank, *options):
    """T5's bias for those distances."""
    table = np.asarray(table, np.float64)
    values, where = np.unique(distance, return_inverse=True)
    buckets = np.array([headlane.t5_bucket(int(d), table.shape[1], *options) for d in values], int)
    buckets = buckets[where].reshape(distance.shape)
    if rank < 3:
        return table[0][buckets]
    return table[np.arange(len(table))[:, None, None], buckets]


class _Scores(NamedTuple):
    values: np.ndarray  # before masking, without the bias of a float mask
    sums: np.ndarray  # sum of |q| |k|, times |scale|
    before: np.ndarray  # the largest magnitude rounded on the way to a score
    distance: np.ndarray  # j - i - causal_offset


def _scores(q, k, scale, softcap, causal_offset, alibi_slopes, relative_bias, max_distance, bidirectional):
    scale = np.float64(np.float32(1 / np.sqrt(np.float32(q.shape[-1])) if scale is None else scale))
    scores = scale * (q @ np.swapaxes(k, -1, -2))
    sums = abs(scale) * (abs(q) @ np.swapaxes(abs(k), -1, -2))
    rank, before = scores.ndim, np.zeros(scores.shape)
    if softcap:
        before = abs(scores)
        scores = softcap * np.tanh(scores / softcap)
    offset = np.asarray(causal_offset)
    offset = _per_batch(offset, rank) if offset.ndim else offset
    distance = np.arange(k.shape[-2]) - np.arange(q.shape[-2])[:, None] - offset
    if alibi_slopes is not None:
        scores = scores + _per_head(alibi_slopes, rank) * distance
        before = np.maximum(before, abs(scores))
    if relative_bias is not None:
        scores = scores + _relative(relative_bias, distance, rank, max_distance, bidirectional)
        before = np.maximum(before, abs(scores))
    return _Scores(scores, sums, before, distance)


def _visible(
    shape, distance, mask, present, *, mask_bits=None, is_causal=False, window=None, key_lengths=None
):
    """Which keys are visible to which queries."""
    keys = shape[-1]
    visible = np.broadcast_to(present, shape).copy()
    if mask_bits is not None:
        visible &= np.unpackbits(mask_bits, axis=-1, count=keys, bitorder="little").astype(bool)
    if mask is not None:
        visible &= mask if mask.dtype == bool else mask != -np.inf
    if is_causal:
        visible &= distance <= 0
    left, right = (-1 if size is None else size for size in window or (None, None))
    if left >= 0:
        visible &= distance >= -left
    if right >= 0:
        visible &= distance <= right
    if key_lengths is not None:
        visible &= np.arange(keys) < _per_batch(key_lengths, len(shape))
    return visible


def _attention_bounds(dim, scores, visible, masked_scores, biased, lse, has_sinks):
    """(relative to the weighted values' magnitudes, of the log-sum-exp). See attention.hpp."""
    keys = visible.shape[-1]
    largest_sum = np.where(visible, scores.sums, 0).max(axis=-1, initial=0)  # S of the header
    largest_score = np.where(visible, abs(masked_scores), 0).max(axis=-1, initial=0)  # M
    n, blocks = min(keys, BLOCK), blocks_of(keys)
    relative = 2 * (dim + 3) * largest_sum + (6 if biased else 4) * largest_score
    relative = (relative + n + np.ceil(n / 16) + 8 * blocks + 12) * U
    finite_lse = np.where(np.isfinite(lse), abs(lse), 0)
    of_lse = (dim + 3) * largest_sum + (3 if biased else 2) * largest_score + finite_lse + np.ceil(n / 16)
    of_lse = (of_lse + 4 * blocks + 2 * np.log(keys + 1) + 8) * U
    # As in the library's own tests: six roundings of what came before the score, and the sink's
    # term.
    more = 6 * np.where(visible, scores.before, 0).max(axis=-1, initial=0)
    more = more + (8 + finite_lse if has_sinks else 0)
    return relative + 2 * more * U, of_lse + more * U


def attention(
    query,
    key,
    value,
    mask=None,
    *,
    scale=None,
    softcap=0,
    causal_offset=0,
    alibi_slopes=None,
    relative_bias=None,
    relative_max_distance=128,
    relative_bidirectional=True,
    query_lengths=None,
    sinks=None,
    **visibility,
):
    """(out, bound, lse, bound of lse) for arrays that broadcast, key and value with all heads. See
    attention.hpp.
    """
    q, k, v = (np.asarray(x, np.float64) for x in (query, key, value))
    bucketed = (relative_bias, relative_max_distance, relative_bidirectional)
    all_scores = _scores(q, k, scale, softcap, causal_offset, alibi_slopes, *bucketed)
    scores, rank = all_scores.values, all_scores.values.ndim
    present = np.ones((*scores.shape[:-1], 1), bool)
    if query_lengths is not None:
        present &= np.arange(q.shape[-2])[:, None] < _per_batch(query_lengths, rank)
    visible = _visible(scores.shape, all_scores.distance, mask, present, **visibility)
    biased = mask is not None and mask.dtype != bool
    if biased:
        scores = scores + np.where(mask == -np.inf, 0, np.asarray(mask, np.float64))
    scores = np.where(visible, scores, -np.inf)

    sink = np.where(present, -np.inf if sinks is None else _per_head(sinks, rank), -np.inf)
    top = np.maximum(scores.max(axis=-1, keepdims=True, initial=-np.inf), sink)
    shift = np.where(np.isfinite(top), top, 0)
    weights = np.exp(scores - shift)
    total = weights.sum(axis=-1, keepdims=True) + np.exp(sink - shift)
    p = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    with np.errstate(divide="ignore"):
        lse = np.where(np.isfinite(top), top, -np.inf)[..., 0] + np.where(total > 0, np.log(total), 0)[..., 0]
    relative, of_lse = _attention_bounds(
        q.shape[-1], all_scores, visible, scores, biased, lse, sinks is not None
    )
    return p @ v, relative[..., None] * (p @ abs(v)) + 2.0**-126, lse, of_lse
