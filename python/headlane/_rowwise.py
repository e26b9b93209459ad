"""Softmax and norms along an axis, and elementwise activations."""

from __future__ import annotations

from typing import Any, overload

from . import _core
from ._types import Array, CallOptions, No, Unpack, Yes


def softmax(
    x: Array,
    axis: int = -1,
    scale: float = 1.0,
    *,
    mask: Any = None,
    bias: Any = None,
    lengths: Any = None,
    causal: bool = False,
    causal_offset: int = 0,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """exp(s) / sum(exp(s)) along an axis, with s = scale * x + bias.

    Masked elements are 0 in the result and have no influence on it, even if NaN. If all elements of a
    row are masked, the row is 0.

    Args:
        x: float32 array with at least one axis.
        axis: The axis to normalize along.
        scale: Factor of x.
        mask: bool, broadcasts to x's shape; elements where it is False are masked.
        bias: float32, broadcasts to x's shape; elements where it is -inf are masked.
        lengths: integers, broadcast to x's shape without the axis; elements from this index on are
            padding: masked, and not read.
        causal: x is [..., queries, keys] and the axis its last; element j of row i is masked if
            j > i + causal_offset.
        causal_offset: The position of the first row, for causal.
        out: Where to write the result; may be x itself.
        num_threads: Maximum number of threads; num_threads() if None or 0.

    Returns:
        An array of x's shape.
    """
    return _core.softmax(False, x, axis, scale, mask, bias, lengths, causal, causal_offset, out, num_threads)


def log_softmax(
    x: Array,
    axis: int = -1,
    scale: float = 1.0,
    *,
    mask: Any = None,
    bias: Any = None,
    lengths: Any = None,
    causal: bool = False,
    causal_offset: int = 0,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """s - log(sum(exp(s))) along an axis, with s = scale * x + bias.

    The parameters are those of softmax. Masked elements are -inf in the result.
    """
    return _core.softmax(True, x, axis, scale, mask, bias, lengths, causal, causal_offset, out, num_threads)


@overload
def layer_norm(
    x: Array,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    residual: Any = None,
    return_sum: No = False,
    **options: Unpack[CallOptions],
) -> Array: ...


@overload
def layer_norm(
    x: Array,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    residual: Any = None,
    return_sum: Yes | Array,
    **options: Unpack[CallOptions],
) -> tuple[Array, Array]: ...


def layer_norm(
    x: Array,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    residual: Any = None,
    return_sum: Any = False,
    out: Any = None,
    num_threads: int | None = None,
) -> Array | tuple[Array, Array]:
    """(s - mean(s)) / sqrt(var(s) + eps) * weight + bias along the last axis, with s = x + residual.

    Numerically stable for large means. A row with a NaN or an infinity is NaN, and so is a row whose
    squares overflow.

    Args:
        x: float32 array with at least one axis.
        weight: float32 vector as long as the last axis; all 1 if None.
        bias: float32 vector as long as the last axis; all 0 if None.
        eps: Added to the variance.
        residual: float32 array of x's shape, added to x first.
        return_sum: True to return x + residual as well, or an array to write it to. That may be x itself
            or residual itself.
        out: Where to write the result; may be x itself or residual itself, but not the array of the sum.
        num_threads: Maximum number of threads; num_threads() if None or 0.

    Returns:
        The result, of x's shape; with return_sum, the pair (result, x + residual).
    """
    return _core.norm(True, x, weight, bias, eps, residual, return_sum, out, num_threads)


@overload
def rms_norm(
    x: Array,
    weight: Any = None,
    eps: float = 1e-6,
    *,
    residual: Any = None,
    return_sum: No = False,
    **options: Unpack[CallOptions],
) -> Array: ...


@overload
def rms_norm(
    x: Array,
    weight: Any = None,
    eps: float = 1e-6,
    *,
    residual: Any = None,
    return_sum: Yes | Array,
    **options: Unpack[CallOptions],
) -> tuple[Array, Array]: ...


def rms_norm(
    x: Array,
    weight: Any = None,
    eps: float = 1e-6,
    *,
    residual: Any = None,
    return_sum: Any = False,
    out: Any = None,
    num_threads: int | None = None,
) -> Array | tuple[Array, Array]:
    """s / sqrt(mean(s**2) + eps) * weight along the last axis, with s = x + residual.

    The parameters are those of layer_norm. The default of eps is that of T5 and Llama; torch.nn.RMSNorm
    has 2**-23.
    """
    return _core.norm(False, x, weight, None, eps, residual, return_sum, out, num_threads)


def relu(x: Array, *, out: Array | None = None, num_threads: int | None = None) -> Array:
    """max(x, 0), elementwise; exact. out may be x itself."""
    return _core.activate("relu", "relu", x, out, num_threads)


def gelu(
    x: Array, approximate: str = "none", *, out: Array | None = None, num_threads: int | None = None
) -> Array:
    """x * Phi(x), elementwise, where Phi is the standard normal distribution function.

    The error is at most 7 ULP. With approximate="tanh", the result is x / 2 * (1 + tanh(z / 2)) with
    z = 2 * sqrt(2 / pi) * (x + 0.044715 * x**3), and the error at most 5 + 3 * max(-z, 0) ULP. Results
    below 2^-119 in magnitude may be 0 where x is far from 0.

    Args:
        x: float32 array.
        approximate: "none" or "tanh", as in torch.nn.functional.gelu.
        out: Where to write the result; may be x itself.
        num_threads: Maximum number of threads; num_threads() if None or 0.

    Returns:
        An array of x's shape.
    """
    names = {"none": "gelu", "tanh": "gelu_tanh"}
    if not isinstance(approximate, str):
        raise TypeError(f"gelu: approximate is {approximate!r}; wanted: 'none' or 'tanh'")
    if approximate not in names:
        raise ValueError(f"gelu: approximate is {approximate!r}; there are 'none' and 'tanh'")
    return _core.activate("gelu", names[approximate], x, out, num_threads)


def silu(x: Array, *, out: Array | None = None, num_threads: int | None = None) -> Array:
    """x * sigmoid(x), elementwise, also called swish; out may be x itself.

    The error is at most 4 ULP. Results below 2^-119 in magnitude may be 0.
    """
    return _core.activate("silu", "silu", x, out, num_threads)


def sigmoid(x: Array, *, out: Array | None = None, num_threads: int | None = None) -> Array:
    """1 / (1 + exp(-x)), elementwise; out may be x itself.

    The error is at most 3 ULP. Results below 2^-119 may be 0.
    """
    return _core.activate("sigmoid", "sigmoid", x, out, num_threads)


def tanh(x: Array, *, out: Array | None = None, num_threads: int | None = None) -> Array:
    """The hyperbolic tangent, elementwise; the error is at most 2 ULP. out may be x itself."""
    return _core.activate("tanh", "tanh", x, out, num_threads)


def erf(x: Array, *, out: Array | None = None, num_threads: int | None = None) -> Array:
    """The error function, elementwise; the error is at most 2 ULP. out may be x itself."""
    return _core.activate("erf", "erf", x, out, num_threads)
