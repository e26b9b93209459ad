"""The functions in float64, each with the bound on the float32 error that the C++ header states."""

import math
from typing import Callable, NamedTuple

import headlane
import numpy as np

U = 2.0**-24  # unit roundoff of float32
BLOCK = 512


def _blocks(length):
    return np.ceil(length / BLOCK)


def gemm(a, b, c=None, alpha=1.0, beta=0.0):
    """alpha * a @ b + beta * c for matrices or batches of them; (result, bound). See gemm.hpp."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    k = a.shape[-1]
    exact = alpha * (a @ b)
    magnitude = abs(alpha) * (abs(a) @ abs(b))
    if beta:
        exact = exact + beta * np.asarray(c, np.float64)
        magnitude = magnitude + abs(beta) * abs(np.asarray(c, np.float64))
    roundings = min(k, BLOCK) + _blocks(k) + 1
    return exact, roundings * U / (1 - roundings * U) * magnitude


_erf, _erfc = (np.vectorize(function, otypes=[np.float64]) for function in (math.erf, math.erfc))


def _sigmoid(x):
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def _tanh_exponent(x):
    return 2 * np.sqrt(2 / np.pi) * x * (1 + 0.044715 * x * x)


class Activation(NamedTuple):
    """headlane's function, the exact one, its largest error in ULP, and how much it stretches a difference of its arguments."""

    function: Callable
    exact: Callable
    ulp: Callable
    slope: float


ACTIVATIONS = {
    "relu": Activation(headlane.relu, lambda x: np.maximum(x, 0), lambda x: 0, 1),
    "gelu": Activation(headlane.gelu, lambda x: x * _erfc(-x / np.sqrt(2)) / 2, lambda x: 10, 1.13),
    "gelu_tanh": Activation(
        lambda x, **options: headlane.gelu(x, "tanh", **options),
        lambda x: x * _sigmoid(_tanh_exponent(x)),
        lambda x: 5 + 4 * np.maximum(-_tanh_exponent(x), 0),
        1.13,
    ),
    "silu": Activation(headlane.silu, lambda x: x * _sigmoid(x), lambda x: 4, 1.1),
    "sigmoid": Activation(headlane.sigmoid, _sigmoid, lambda x: 3, 0.25),
    "tanh": Activation(headlane.tanh, np.tanh, lambda x: 2, 1),
    "erf": Activation(headlane.erf, _erf, lambda x: 2, 2 / np.sqrt(np.pi)),
}


def ulp(y):
    """The distance of float32 numbers at y."""
    return np.spacing(np.maximum(abs(y), 2.0**-126).astype(np.float32)).astype(np.float64)


def activation(name, x):
    """(result, bound). See activation_kind.hpp: what is below 2^-119 may be 0."""
    x = np.asarray(x, np.float64)
    y = ACTIVATIONS[name].exact(x)
    return y, np.maximum(ACTIVATIONS[name].ulp(x) * ulp(y), np.where(abs(y) < 2.0**-119, abs(y), 0))


def linear(x, w, bias=None, activation_name=None, residual=None):
    """(result, bound): the product's error and a rounding for each sum, carried through the activation."""
    y, bound = gemm(x, w)
    if bias is not None:
        y = y + np.asarray(bias, np.float64)
        bound = bound + U * (abs(y) + bound)
    if activation_name is not None:
        inner, (y, own) = y, activation(activation_name, y)
        one = ACTIVATIONS[activation_name]
        # Its error is bounded at the rounded argument, whose result is that far away at most.
        reach = one.slope * bound
        own = np.maximum(own, np.maximum(one.ulp(inner - bound), one.ulp(inner)) * ulp(abs(y) + reach))
        bound = reach + own
    if residual is not None:
        y = y + np.asarray(residual, np.float64)
        bound = bound + U * (abs(y) + bound)
    return y, bound


def gemm_gated(a, gate, up, gate_bias=None, up_bias=None, activation_name="silu"):
    """(result, bound): the errors of both factors, and a rounding, which may be to a denormal number."""
    (y, of_y), (z, of_z) = linear(a, gate, gate_bias, activation_name), linear(a, up, up_bias)
    bound = of_y * abs(z) + abs(y) * of_z + of_y * of_z
    return y * z, bound + U * (abs(y * z) + bound) + 2.0**-150


def softmax(x, axis=-1, scale=1.0, log=False):
    """(result, bound). See softmax.hpp."""
    s = np.asarray(x, np.float64) * np.float64(np.float32(scale))
    shifted = s - s.max(axis=axis, keepdims=True)
    total = np.exp(shifted).sum(axis=axis, keepdims=True)
    n = s.shape[axis]
    steps = np.ceil(n / 16) + 2 * np.log(n + 1)
    if log:
        y = shifted - np.log(total)
        return y, (2 * abs(shifted) + abs(y) + steps + 8) * U
    y = np.exp(shifted) / total
    return y, (2 * abs(shifted) + steps + 9) * U * y + 2.0**-126


def masked_softmax(
    x, axis=-1, scale=1.0, log=False, mask=True, bias=0.0, lengths=None, causal=False, causal_offset=0
):
    """(result, bound): of the elements that take part; 0 or -inf of the others. See softmax.hpp."""
    s = np.asarray(x, np.float64) * np.float64(np.float32(scale)) + np.asarray(bias, np.float64)
    seen = np.broadcast_to(mask, s.shape) & np.broadcast_to(np.asarray(bias) != -np.inf, s.shape)
    n = s.shape[axis]
    along = np.arange(n).reshape([-1 if i == axis % s.ndim else 1 for i in range(s.ndim)])
    if lengths is not None:
        without = s.shape[: axis % s.ndim] + s.shape[axis % s.ndim + 1 :]
        seen = seen & (along < np.expand_dims(np.broadcast_to(lengths, without), axis % s.ndim))
    if causal:
        seen = seen & (along <= np.arange(s.shape[-2])[:, np.newaxis] + causal_offset)
    s = np.where(seen, s, -np.inf)
    largest = s.max(axis=axis, keepdims=True)
    largest = np.where(np.isfinite(largest), largest, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        shifted = s - largest
        total = np.exp(shifted).sum(axis=axis, keepdims=True)
        roundings = (
            3 * np.where(seen, abs(shifted), 0) + 2 * abs(largest) + np.ceil(n / 16) + 3 * np.log(n + 1)
        )
        if log:
            y = np.where(seen, shifted - np.log(total), -np.inf)
            return y, (roundings + np.where(seen, abs(y), 0) + 8) * U
        y = np.where(seen, np.exp(shifted) / total, 0)
        return y, (roundings + 9) * U * y + 2.0**-126


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


def attention(
    query,
    key,
    value,
    mask=None,
    *,
    is_causal=False,
    causal_offset=0,
    scale=None,
    softcap=0,
    window=None,
    key_lengths=None,
    query_lengths=None,
    alibi_slopes=None,
    sinks=None,
    mask_bits=None,
    relative_bias=None,
    relative_max_distance=128,
    relative_bidirectional=True,
):
    """(out, bound, lse, bound of lse) on arrays that broadcast, key and value with all heads. See attention.hpp."""
    q, k, v = (np.asarray(x, np.float64) for x in (query, key, value))
    dim, keys = q.shape[-1], k.shape[-2]
    scale = np.float64(np.float32(1 / np.sqrt(np.float32(dim)) if scale is None else scale))
    scores = scale * (q @ np.swapaxes(k, -1, -2))
    sums = abs(scale) * (abs(q) @ np.swapaxes(abs(k), -1, -2))
    seen, rank = np.ones(scores.shape, bool), scores.ndim
    before = np.zeros(scores.shape)  # the largest magnitude of what is rounded on the way to a score
    if softcap:
        before = abs(scores)
        scores = softcap * np.tanh(scores / softcap)
    offset = np.asarray(causal_offset)
    distance = (
        np.arange(keys)
        - np.arange(q.shape[-2])[:, None]
        - (_per_batch(offset, rank) if offset.ndim else offset)
    )
    if alibi_slopes is not None:
        scores = scores + _per_head(alibi_slopes, rank) * distance
        before = np.maximum(before, abs(scores))
    if relative_bias is not None:
        scores = scores + _relative(
            relative_bias, distance, rank, relative_max_distance, relative_bidirectional
        )
        before = np.maximum(before, abs(scores))
    if mask_bits is not None:
        bits = np.unpackbits(mask_bits, axis=-1, count=keys, bitorder="little").astype(bool)
        seen &= np.broadcast_to(bits, scores.shape)
    biased = mask is not None and mask.dtype != bool
    if biased:
        seen &= np.broadcast_to(mask != -np.inf, scores.shape)
        scores = scores + np.where(mask == -np.inf, 0, np.asarray(mask, np.float64))
    elif mask is not None:
        seen &= np.broadcast_to(mask, scores.shape)
    if is_causal:
        seen &= distance <= 0
    left, right = (-1 if size is None else size for size in window or (None, None))
    if left >= 0:
        seen &= distance >= -left
    if right >= 0:
        seen &= distance <= right
    if key_lengths is not None:
        seen &= np.arange(keys) < _per_batch(key_lengths, rank)
    present = np.ones((*scores.shape[:-1], 1), bool)
    if query_lengths is not None:
        present &= np.arange(q.shape[-2])[:, None] < _per_batch(query_lengths, rank)
    seen &= present

    scores = np.where(seen, scores, -np.inf)
    largest_sum = np.where(seen, sums, 0).max(axis=-1, initial=0)  # S of the header
    largest_score = np.where(seen, abs(scores), 0).max(axis=-1, initial=0)  # M
    sink = np.where(present, -np.inf if sinks is None else _per_head(sinks, rank), -np.inf)
    top = np.maximum(scores.max(axis=-1, keepdims=True, initial=-np.inf), sink)
    shift = np.where(np.isfinite(top), top, 0)
    weights = np.exp(scores - shift)
    total = weights.sum(axis=-1, keepdims=True) + np.exp(sink - shift)
    p = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    with np.errstate(divide="ignore"):
        lse = np.where(np.isfinite(top), top, -np.inf)[..., 0] + np.where(total > 0, np.log(total), 0)[..., 0]

    n, blocks = min(keys, BLOCK), _blocks(keys)
    relative = 2 * (dim + 3) * largest_sum + (6 if biased else 4) * largest_score
    relative = (relative + n + np.ceil(n / 16) + 8 * blocks + 12) * U
    finite_lse = np.where(np.isfinite(lse), abs(lse), 0)
    of_lse = (dim + 3) * largest_sum + (3 if biased else 2) * largest_score + finite_lse + np.ceil(n / 16)
    of_lse = (of_lse + 4 * blocks + 2 * np.log(keys + 1) + 8) * U
    # As the library's own tests have it: six roundings of what came before the score, and the sink's term.
    more = 6 * np.where(seen, before, 0).max(axis=-1, initial=0) + (0 if sinks is None else 8 + finite_lse)
    relative, of_lse = relative + 2 * more * U, of_lse + more * U
    return p @ v, relative[..., None] * (p @ abs(v)) + 2.0**-126, lse, of_lse


def check(actual, exact, bound):
    """Every element within its bound, and the bound small beside the data; gives the largest error / bound."""
    actual = np.asarray(actual)
    assert actual.dtype == np.float32
    assert actual.shape == exact.shape
    if actual.size == 0:
        return 0.0
    same = actual == exact  # infinities too
    with np.errstate(invalid="ignore"):
        error = np.where(same, 0, abs(actual - exact))
    worst = np.unravel_index(np.argmax(error - bound), error.shape)
    assert (error <= bound).all(), (
        f"at {worst}: {actual[worst]} for {exact[worst]}, bound {np.broadcast_to(bound, error.shape)[worst]}"
    )
    finite = abs(exact[np.isfinite(exact)])
    assert finite.size < 16 or np.max(bound) < 1e-2 * max(finite.max(), 2.0**-100), "the bound says nothing"
    return float(np.max(np.divide(error, bound, out=np.zeros_like(error), where=bound > 0)))
