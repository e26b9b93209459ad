"""The arithmetic of transformers on CPUs: attention, softmax, norms, matrix products, activations in float32, the same bits everywhere.

Every function takes NumPy arrays, PyTorch CPU tensors and whatever else has DLPack, with any strides, without copying, and gives
back the kind that its first argument is. Nothing here records gradients. Computations release the GIL.

Refused in words: masked arrays; tensors that are sparse, quantised, nested, complex or on another device; tensors that require a
gradient while one is recorded, have a tangent, are traced by torch.jit, or are wrapped by torch.func or by a subclass that computes by
itself. Of another subclass of an array the elements are read; the result is a plain array. A number, flag or name of another type is
a TypeError that names the argument: an integer is whatever has __index__, a flag True or False.
"""

from __future__ import annotations

from typing import Any, Literal, overload

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
from ._kv_cache import KvCache
from ._layers import DecoderLayer, Embedding, EncoderLayer, FeedForward, Linear, MultiHeadAttention
from ._packed import PackedMatrix
from ._types import Array

__version__: str = _core.version()
_layers = (DecoderLayer, Embedding, EncoderLayer, FeedForward, Linear, MultiHeadAttention)
for _class in (AttentionPlan, KvCache, PackedMatrix, *_layers):
    _class.__module__ = __name__  # where users find them
__all__ = [
    "AttentionPlan",
    "DecoderLayer",
    "Embedding",
    "EncoderLayer",
    "FeedForward",
    "KvCache",
    "Linear",
    "MultiHeadAttention",
    "PackedMatrix",
    "add_sinusoidal_encoding",
    "alibi_slopes",
    "attention_key_sums",
    "attention_over_cache",
    "attention_weights",
    "available_isas",
    "erf",
    "gelu",
    "gemm",
    "gemm_gated",
    "isa",
    "layer_norm",
    "linear",
    "log_softmax",
    "matmul",
    "merge",
    "num_threads",
    "plan_attention",
    "relu",
    "rms_norm",
    "rotary_embedding",
    "scaled_dot_product_attention",
    "set_isa",
    "set_num_threads",
    "sigmoid",
    "silu",
    "sinusoidal_encoding",
    "softmax",
    "t5_bucket",
    "tanh",
]


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
    return _core.softmax(True, x, axis, scale, mask, bias, lengths, causal, causal_offset, out, num_threads)


@overload
def layer_norm(
    x: Array,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    residual: Any = None,
    return_sum: Literal[False] = False,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array: ...


@overload
def layer_norm(
    x: Array,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    residual: Any = None,
    return_sum: Literal[True] | Array,
    out: Array | None = None,
    num_threads: int | None = None,
) -> tuple[Array, Array]: ...


def layer_norm(
    x: Array,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    residual: Any = None,
    return_sum: Any = False,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Any:
    """(s - mean(s)) / sqrt(var(s) + eps) * weight + bias along the last axis, s = x + residual.

    weight, bias: as long as the last axis.
    residual: of x's shape.
    return_sum: True: a pair, the result and x + residual, which the next block of a transformer adds to; an array: the same,
      written there, which may be x itself or residual itself.
    out: where to write the result; may be x itself or residual itself, but not where the sum goes.

    A mean far from 0 costs no digits. A row with a NaN or an infinity is NaN, and so is one whose squares overflow.
    """
    return _core.norm(True, x, weight, bias, eps, residual, return_sum, out, num_threads)


@overload
def rms_norm(
    x: Array,
    weight: Any = None,
    eps: float = 1e-6,
    *,
    residual: Any = None,
    return_sum: Literal[False] = False,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array: ...


@overload
def rms_norm(
    x: Array,
    weight: Any = None,
    eps: float = 1e-6,
    *,
    residual: Any = None,
    return_sum: Literal[True] | Array,
    out: Array | None = None,
    num_threads: int | None = None,
) -> tuple[Array, Array]: ...


def rms_norm(
    x: Array,
    weight: Any = None,
    eps: float = 1e-6,
    *,
    residual: Any = None,
    return_sum: Any = False,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Any:
    """s / sqrt(mean(s**2) + eps) * weight along the last axis, s = x + residual; everything as in layer_norm.

    eps is that of T5 and Llama; that of torch.nn.RMSNorm is 2**-23.
    """
    return _core.norm(False, x, weight, None, eps, residual, return_sum, out, num_threads)


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
    num_threads: for this call; num_threads() if None or 0.

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
    num_threads: for this call; num_threads() if None or 0.

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
    if not isinstance(approximate, str):
        raise TypeError(f"gelu: approximate is {approximate!r}; wanted: 'none' or 'tanh'")
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


def sinusoidal_encoding(
    length: int,
    d_model: int,
    *,
    offset: int = 0,
    base: float = 10000.0,
    doubled_exponent: bool = False,
    interleaved: bool = True,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Any:
    """[length, d_model]: column 2j of row i is sin((offset + i) * base ** (-2j / d_model)), column 2j + 1 its cosine.

    doubled_exponent: base ** (-4j / d_model) instead, as some tutorials have it.
    interleaved: False puts all sines before all cosines.
    out: where to write it, of any kind; a new NumPy array if None.

    Values are at most 1.4 ULP off, also for large positions.
    """
    return _core.sinusoidal_encoding(
        length, d_model, offset, base, doubled_exponent, interleaved, out, num_threads
    )


def add_sinusoidal_encoding(
    x: Array,
    scale: float = 1.0,
    *,
    offset: int = 0,
    base: float = 10000.0,
    doubled_exponent: bool = False,
    interleaved: bool = True,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """x * scale + sinusoidal_encoding, rounded once; x is [..., length, d_model]; out may be x itself.

    scale: 0 means sqrt(d_model). The other parameters are those of sinusoidal_encoding.
    """
    return _core.add_sinusoidal_encoding(
        x, scale, offset, base, doubled_exponent, interleaved, out, num_threads
    )


def rotary_embedding(
    x: Array,
    *,
    base: float = 10000.0,
    rotary_dim: int = 0,
    interleaved: bool = False,
    offset: int = 0,
    positions: Any = None,
    frequencies: Any = None,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """Rotates pairs of elements of x [batch, heads, length, head_dim] (or fewer axes) by angles position * frequency.

    base: frequency j is base ** (-2j / rotary_dim), not rounded to float32 as PyTorch models have it.
    rotary_dim: the first so many elements are rotated, the others copied; 0: all.
    interleaved: pairs are 2j, 2j + 1 (GPT-J); otherwise j, j + rotary_dim / 2 (Llama, GPT-NeoX).
    offset: position of the first row.
    positions: integers [batch], added to the positions of a batch element, or [batch, length], to the offset alone.
    frequencies: float32 [rotary_dim / 2], in place of the base.
    out: where to write the result; may be x itself.
    """
    return _core.rotary_embedding(
        x, base, rotary_dim, interleaved, offset, positions, frequencies, out, num_threads
    )


def alibi_slopes(heads: int) -> np.ndarray:
    """The slopes of ALiBi (Press et al. 2022) for any number of heads, correctly rounded."""
    return _core.alibi_slopes(heads)


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
