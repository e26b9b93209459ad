"""The functions in float64, each with the bound on the float32 error that the C++ header states."""

import math
from typing import Callable, NamedTuple

import headlane
import numpy as np
from reference_attention import BLOCK, U, blocks_of
from reference_attention import attention as attention


def gemm(a, b, c=None, alpha=1.0, beta=0.0):
    """alpha * a @ b + beta * c for matrices or batches of them; (result, bound). See gemm.hpp."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    k = a.shape[-1]
    exact = alpha * (a @ b)
    magnitude = abs(alpha) * (abs(a) @ abs(b))
    if beta:
        exact = exact + beta * np.asarray(c, np.float64)
        magnitude = magnitude + abs(beta) * abs(np.asarray(c, np.float64))
    roundings = min(k, BLOCK) + blocks_of(k) + 1
    return exact, roundings * U / (1 - roundings * U) * magnitude


_erf, _erfc = (np.vectorize(function, otypes=[np.float64]) for function in (math.erf, math.erfc))


def _sigmoid(x):
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def _tanh_exponent(x):
    return 2 * np.sqrt(2 / np.pi) * x * (1 + 0.044715 * x * x)


class Activation(NamedTuple):
    """headlane's function, the exact one, its largest error in ULP, and how much it stretches a
    difference of its arguments.
    """

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
    """(result, bound). See activation_kind.hpp: results below 2^-119 may be 0."""
    x = np.asarray(x, np.float64)
    y = ACTIVATIONS[name].exact(x)
    return y, np.maximum(ACTIVATIONS[name].ulp(x) * ulp(y), np.where(abs(y) < 2.0**-119, abs(y), 0))


def linear(x, w, bias=None, activation_name=None, residual=None):
    """(result, bound): the product's error and a rounding for each sum, carried through the
    activation.
    """
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
    """(result, bound): the errors of both factors, and a rounding, which may be to a denormal
    number.
    """
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
    visible = np.broadcast_to(mask, s.shape) & np.broadcast_to(np.asarray(bias) != -np.inf, s.shape)
    n = s.shape[axis]
    along = np.arange(n).reshape([-1 if i == axis % s.ndim else 1 for i in range(s.ndim)])
    if lengths is not None:
        without = s.shape[: axis % s.ndim] + s.shape[axis % s.ndim + 1 :]
        visible = visible & (along < np.expand_dims(np.broadcast_to(lengths, without), axis % s.ndim))
    if causal:
        visible = visible & (along <= np.arange(s.shape[-2])[:, np.newaxis] + causal_offset)
    s = np.where(visible, s, -np.inf)
    largest = s.max(axis=axis, keepdims=True)
    largest = np.where(np.isfinite(largest), largest, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        shifted = s - largest
        total = np.exp(shifted).sum(axis=axis, keepdims=True)
        roundings = (
            3 * np.where(visible, abs(shifted), 0) + 2 * abs(largest) + np.ceil(n / 16) + 3 * np.log(n + 1)
        )
        if log:
            y = np.where(visible, shifted - np.log(total), -np.inf)
            return y, (roundings + np.where(visible, abs(y), 0) + 8) * U
        y = np.where(visible, np.exp(shifted) / total, 0)
        return y, (roundings + 9) * U * y + 2.0**-126


def check(actual, exact, bound):
    """Every element within its bound, and the bound small beside the data; returns the largest
    error / bound.
    """
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
