"""Matrix products, with bias, activation and residual."""

from __future__ import annotations

from typing import Any

from . import _core
from ._types import ActivationDType, Array


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
    activations: ActivationDType = "float32",
    num_threads: int | None = None,
) -> Array:
    """activation(alpha * a @ b + beta * out + bias) + residual for matrices a and b.

    Args:
        a: [m, k].
        b: [k, n], or a PackedMatrix of that shape.
        out: [m, n], where to write the result; must not overlap any argument. It is read only if beta
            is not 0, and then required.
        alpha: Factor of the product.
        beta: Factor of the values in out.
        bias: [n], added to each row.
        activation: As in linear.
        residual: [m, n], added last.
        activations: As in linear.
        num_threads: Maximum number of threads; num_threads() if None or 0.

    Returns:
        [m, n].
    """
    return _core.gemm(a, b, out, alpha, beta, bias, activation, residual, activations, num_threads)


def matmul(
    a: Array,
    b: Any,
    out: Array | None = None,
    *,
    activations: ActivationDType = "float32",
    num_threads: int | None = None,
) -> Array:
    """a @ b by the rules of numpy.matmul.

    Batch axes broadcast; a vector is a row on the left and a column on the right. The products of a
    batch share the threads, and have the same bits as from gemm.

    Args:
        a: [..., m, k] or [k].
        b: [..., k, n] or [k], or a PackedMatrix [k, n].
        out: Where to write the result; must not overlap any argument.
        activations: As in linear.
        num_threads: Maximum number of threads; num_threads() if None or 0.

    Returns:
        [..., m, n]. For two vectors an array without axes, not a scalar.
    """
    return _core.matmul(a, b, out, activations, num_threads)


def linear(
    x: Array,
    packed: Any,
    bias: Any = None,
    activation: str | None = None,
    residual: Any = None,
    out: Array | None = None,
    *,
    activations: ActivationDType = "float32",
    num_threads: int | None = None,
) -> Array:
    """activation(x @ packed + bias) + residual, with the bits of separate calls.

    The axes of x before the last are rows of a single product where the strides of x, out and residual
    allow it, otherwise of several.

    Args:
        x: [..., k].
        packed: A PackedMatrix [k, n]; or an array, which is packed in every call.
        bias: [n].
        activation: "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "erf" or None.
        residual: [..., n], added last.
        out: Where to write the result; must not overlap any argument.
        activations: With "int8", and a PackedMatrix of "int8", "int8_group32" or "int4_group32", the
            product is one of integers: of each row of x, the element of the largest magnitude stays in
            float32, and the others are rounded to 8 bits, -127 … 127 steps from the middle between the
            largest and the smallest of them. The result of a row depends on that row alone; one with an
            element that is not finite is NaN.
            With "bfloat16", and a PackedMatrix of "bfloat16", x is rounded to bfloat16, and sums are in
            float32.
        num_threads: Maximum number of threads; num_threads() if None or 0.

    Returns:
        [..., n].
    """
    return _core.linear(x, packed, bias, activation, residual, out, activations, num_threads)


def gemm_gated(
    a: Array,
    gate: Any,
    up: Any,
    *,
    gate_bias: Any = None,
    up_bias: Any = None,
    activation: str | None = "silu",
    activations: ActivationDType = "float32",
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """activation(a @ gate + gate_bias) * (a @ up + up_bias), with the bits of separate calls.

    Neither product is stored as a whole. The axes of a before the last are rows, as in linear.

    Args:
        a: [..., k].
        gate: A PackedMatrix [k, n]; or an array, which is packed in every call.
        up: Likewise. Either both are a PackedMatrix or both are arrays.
        gate_bias: [n].
        up_bias: [n].
        activation: Of the gate: "silu" is SwiGLU, "gelu" GEGLU, "relu" ReGLU, "sigmoid" GLU. For others
            see linear.
        activations: As in linear, for both products.
        out: Where to write the result; must not overlap any argument.
        num_threads: Maximum number of threads; num_threads() if None or 0.

    Returns:
        [..., n].
    """
    return _core.gemm_gated(a, gate, up, gate_bias, up_bias, activation, activations, out, num_threads)
