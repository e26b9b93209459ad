"""The arithmetic of transformers on CPUs: attention, softmax, matrix products, activations in float32, the same bits everywhere.

Every function takes NumPy arrays, PyTorch CPU tensors and whatever else has DLPack, with any strides, without copying, and gives
back the kind that its first argument is. Nothing here records gradients. Computations release the GIL.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from . import _core
from ._attention import (
    AttentionPlan,
    attention_key_sums,
    attention_over_cache,
    attention_weights,
    merge,
    plan_attention,
    scaled_dot_product_attention,
    t5_bucket,
)
from ._core import KvCache, PackedMatrix

__version__: str = _core.version()
for _class in (AttentionPlan, KvCache, PackedMatrix):
    _class.__module__ = __name__  # where users find them
__all__ = [
    "AttentionPlan",
    "KvCache",
    "PackedMatrix",
    "attention_key_sums",
    "attention_over_cache",
    "attention_weights",
    "available_isas",
    "erf",
    "gelu",
    "gemm",
    "gemm_gated",
    "isa",
    "linear",
    "log_softmax",
    "matmul",
    "merge",
    "num_threads",
    "plan_attention",
    "relu",
    "scaled_dot_product_attention",
    "set_isa",
    "set_num_threads",
    "sigmoid",
    "silu",
    "softmax",
    "t5_bucket",
    "tanh",
]

Array = TypeVar("Array")


def _lengths(function: str, name: str, lengths: Any) -> np.ndarray | None:
    """As int64, which is what the library reads."""
    if lengths is None:
        return None
    given = np.asarray(lengths)
    if given.dtype.kind not in "iu" and given.size > 0:
        raise TypeError(f"{function}: {name} has dtype {given.dtype}; wanted: integers")
    return given.astype(np.int64, copy=False)


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
    """exp(s) / sum(exp(s)) along an axis, s = scale * x + bias; out may be x itself.

    mask: bool, broadcasts to x's shape; only where it is True an element takes part.
    bias: float32, broadcasts likewise; where it is -inf an element does not take part.
    lengths: integers that broadcast to x's shape without the axis; elements from there on are padding, which is not read.
    causal: x is [..., queries, keys], the axis its last; key j of query i takes part only if j <= i + causal_offset.

    Elements that do not take part give 0 and have no influence, even if NaN; a row of them gives 0.
    """
    lengths = _lengths("softmax", "lengths", lengths)
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
    """s - log(sum(exp(s))) along an axis, s = scale * x + bias; out may be x itself.

    mask, bias, lengths and causal as in softmax; elements that do not take part give -inf.
    """
    lengths = _lengths("log_softmax", "lengths", lengths)
    return _core.softmax(True, x, axis, scale, mask, bias, lengths, causal, causal_offset, out, num_threads)


def gemm(
    a: Array,
    b: Any,
    out: Array | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    bias: Any = None,
    activation: str | None = None,
    residual: Any = None,
    num_threads: int | None = None,
) -> Array:
    """activation(alpha * a @ b + beta * out + bias) + residual for matrices a [m, k], b [k, n] or a PackedMatrix.

    With beta = 0 out is not read and need not be given. bias [n] is added to each row, residual is [m, n]; for activation
    see linear. out must overlap no argument.
    """
    return _core.gemm(a, b, out, alpha, beta, bias, activation, residual, num_threads)


def matmul(a: Array, b: Any, out: Array | None = None, *, num_threads: int | None = None) -> Array:
    """a @ b by the rules of numpy.matmul: batch axes broadcast, a vector is a row on the left, a column on the right.

    b may be a PackedMatrix. Two vectors give an array without axes, not a scalar. out must overlap no argument. The products
    of a batch share the threads; with the bits of gemm, whatever the batch.
    """
    return _core.matmul(a, b, out, num_threads)


def linear(
    x: Array,
    packed: Any,
    bias: Any = None,
    activation: str | None = None,
    residual: Any = None,
    out: Array | None = None,
    *,
    num_threads: int | None = None,
) -> Array:
    """activation(x @ packed + bias) + residual: x [..., k] gives [..., n], with the bits of separate calls.

    packed: a PackedMatrix, or a matrix [k, n], which is packed in every call.
    bias: [n].
    activation: "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "erf" or None.
    residual: of the result's shape.
    out: where to write the result; must overlap no argument.
    num_threads: for this call; num_threads() if None.

    The axes before the last are rows of one product if the strides of x, out and residual allow, else of several.
    """
    return _core.linear(x, packed, bias, activation, residual, out, num_threads)


def gemm_gated(
    a: Array,
    gate: Any,
    up: Any,
    *,
    gate_bias: Any = None,
    up_bias: Any = None,
    activation: str | None = "silu",
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """activation(a @ gate + gate_bias) * (a @ up + up_bias): a [..., k] gives [..., n], with the bits of separate calls.

    gate, up: both a PackedMatrix, or both a matrix [k, n], which is packed in every call.
    gate_bias, up_bias: [n].
    activation: of the gate; "silu" is SwiGLU, "gelu" GEGLU, "relu" ReGLU, "sigmoid" GLU; for others see linear.
    out: where to write the result; must overlap no argument.
    num_threads: for this call; num_threads() if None.

    Neither product is ever stored whole. The axes before the last are rows, as for linear.
    """
    return _core.gemm_gated(a, gate, up, gate_bias, up_bias, activation, out, num_threads)


def relu(x: Array, *, out: Array | None = None, num_threads: int | None = None) -> Array:
    """max(x, 0), exact; out may be x itself."""
    return _core.activate("relu", "relu", x, out, num_threads)


def gelu(
    x: Array, approximate: str = "none", *, out: Array | None = None, num_threads: int | None = None
) -> Array:
    """x * Phi(x), Phi being the normal distribution's; at most 10 ULP off. out may be x itself.

    With approximate="tanh" x / 2 * (1 + tanh(z / 2)), z = 2 * sqrt(2 / pi) * (x + 0.044715 * x**3); at most
    5 + 4 * max(-z, 0) ULP off. A result below 2^-119 in magnitude far from x = 0 may be 0.
    """
    names = {"none": "gelu", "tanh": "gelu_tanh"}
    if approximate not in names:
        raise ValueError(f"gelu: approximate is {approximate!r}; there are 'none' and 'tanh'")
    return _core.activate("gelu", names[approximate], x, out, num_threads)


def silu(x: Array, *, out: Array | None = None, num_threads: int | None = None) -> Array:
    """x * sigmoid(x), also called swish; at most 4 ULP off; below 2^-119 in magnitude it may be 0. out may be x itself."""
    return _core.activate("silu", "silu", x, out, num_threads)


def sigmoid(x: Array, *, out: Array | None = None, num_threads: int | None = None) -> Array:
    """1 / (1 + exp(-x)); at most 3 ULP off; below 2^-119 in magnitude it may be 0. out may be x itself."""
    return _core.activate("sigmoid", "sigmoid", x, out, num_threads)


def tanh(x: Array, *, out: Array | None = None, num_threads: int | None = None) -> Array:
    """The hyperbolic tangent; at most 2 ULP off. out may be x itself."""
    return _core.activate("tanh", "tanh", x, out, num_threads)


def erf(x: Array, *, out: Array | None = None, num_threads: int | None = None) -> Array:
    """The error function; at most 2 ULP off. out may be x itself."""
    return _core.activate("erf", "erf", x, out, num_threads)


def isa() -> str:
    """The instruction set in use: the fastest one, or what HEADLANE_ISA or set_isa() said."""
    return _core.isa()


def available_isas() -> list[str]:
    """The instruction sets that are built in and that this CPU has, fastest first."""
    return _core.available_isas()


def set_isa(name: str) -> None:
    """Uses another instruction set in the whole process; no bit of any result changes. Not while a thread computes."""
    _core.set_isa(name)


def num_threads() -> int:
    """The threads that a call may use: set_num_threads(), else HEADLANE_NUM_THREADS, else OpenMP's setting."""
    return _core.num_threads()


def set_num_threads(threads: int) -> None:
    """Sets the number of threads for the whole process; 0 goes back to the environment's."""
    _core.set_num_threads(threads)
