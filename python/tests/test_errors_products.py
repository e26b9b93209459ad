"""Illegal calls of gemm, matmul and linear."""

import headlane
import numpy as np
import pytest
from illegal_calls import MISALIGNED, PACKED, X4, X, check_refused, new_out

CASES = {
    "gemm vector": (lambda o: headlane.gemm(X, X[0]), ValueError, r"b has shape \[8\]"),
    "gemm sizes": (lambda o: headlane.gemm(X, X, new_out(4, 8)), ValueError, "a has 8 columns, b has 4 rows"),
    "beta": (lambda o: headlane.gemm(X, X.T, beta=0.5), ValueError, "beta is 0.5.* needs out"),
    "matmul sizes": (lambda o: headlane.matmul(X, X), ValueError, "8 columns, b .* 4 rows"),
    "matmul batches": (
        lambda o: headlane.matmul(X4, X4[:, :5].swapaxes(2, 3)),
        ValueError,
        "axis 1 of b .*have 6",
    ),
    "matmul scalar": (lambda o: headlane.matmul(X, np.array(1, np.float32)), ValueError, "b has no axis"),
    "matmul, packed": (lambda o: headlane.matmul(X4, PACKED), ValueError, "a .* 8 columns, b has 4 rows"),
    "packed vector": (lambda o: headlane.PackedMatrix(X[0]), ValueError, r"b has shape \[8\]"),
    "packed float64": (
        lambda o: headlane.PackedMatrix(X.astype(np.float64)),
        TypeError,
        r"b .*float64.*b\.astype",
    ),
    "packed dtype": (
        lambda o: headlane.PackedMatrix(X, dtype="int3"),
        ValueError,
        "dtype is 'int3'; there are",
    ),
    "packed dtype type": (lambda o: headlane.PackedMatrix(X, dtype=16), TypeError, "dtype"),
    "packed int8": (
        lambda o: headlane.PackedMatrix(X * np.float32(np.inf), dtype="int8"),
        ValueError,
        "b has an element that is not finite in column 0",
    ),
    "packed threads": (lambda o: headlane.PackedMatrix(X, num_threads=-1), ValueError, "num_threads is -1"),
    "packed misaligned": (
        lambda o: headlane.PackedMatrix(MISALIGNED),
        ValueError,
        "PackedMatrix: b is misaligned",
    ),
    "packed as x": (
        lambda o: headlane.linear(PACKED, PACKED),
        TypeError,
        r"x has type headlane\.PackedMatrix",
    ),
    "packed as a": (lambda o: headlane.gemm(PACKED, X.T), TypeError, r"a has type headlane\.PackedMatrix"),
    "linear sizes": (
        lambda o: headlane.linear(X, PACKED, out=o),
        ValueError,
        r"x of shape \[4, 8\] has 8 columns, packed has 4 rows",
    ),
    "linear weight": (lambda o: headlane.linear(X, X4), ValueError, "packed has shape .* must be a matrix"),
    "linear no axis": (
        lambda o: headlane.linear(np.array(1, np.float32), PACKED),
        ValueError,
        "x has no axis",
    ),
    "linear out": (
        lambda o: headlane.linear(X.T, PACKED, out=o),
        ValueError,
        r"out has shape \[4, 8\], the result \[8, 8\]",
    ),
    "bias": (
        lambda o: headlane.linear(X[:, :4], PACKED, X[0, :7], out=o),
        ValueError,
        r"linear: bias has shape \[7\], the result \[4, 8\]: wanted \[8\]",
    ),
    "bias rank": (
        lambda o: headlane.gemm(X[:, :4], PACKED, o, bias=X[:1]),
        ValueError,
        r"bias has shape \[1, 8\]",
    ),
    "bias list": (lambda o: headlane.linear(X[:, :4], PACKED, [1.0], out=o), TypeError, "bias has type list"),
    "residual": (
        lambda o: headlane.gemm(X[:, :4], PACKED, o, residual=X[:1]),
        ValueError,
        r"residual has shape \[1, 8\], the result \[4, 8\]",
    ),
    "residual float64": (
        lambda o: headlane.linear(X[:, :4], PACKED, residual=X.astype(np.float64), out=o),
        TypeError,
        "residual .*float64",
    ),
    "residual is out": (
        lambda o: headlane.linear(X[:, :4], PACKED, residual=o, out=o),
        ValueError,
        "out of shape .* overlaps residual",
    ),
    "activation": (
        lambda o: headlane.linear(X[:, :4], PACKED, None, "swish", out=o),
        ValueError,
        "activation is 'swish'; there are relu, gelu, gelu_tanh, silu, sigmoid, tanh, erf, and None",
    ),
    "gemm activation": (
        lambda o: headlane.gemm(X[:, :4], PACKED, o, activation="none"),
        ValueError,
        "gemm: activation is 'none'; there are relu",
    ),
    "activations": (
        lambda o: headlane.linear(X[:, :4], PACKED, out=o, activations="float16"),
        ValueError,
        "linear: activations is 'float16'; there are float32, bfloat16 and int8",
    ),
    "activations, matrix of float32": (
        lambda o: headlane.linear(X[:, :4], PACKED, out=o, activations="int8"),
        ValueError,
        "linear: packed is a PackedMatrix of float32; with activations int8 it must be a PackedMatrix of int8",
    ),
    "activations, matrix of bfloat16": (
        lambda o: headlane.gemm(X[:, :4], headlane.PackedMatrix(X, dtype="bfloat16"), o, activations="int8"),
        ValueError,
        "gemm: b is a PackedMatrix of bfloat16; with activations int8 it must be",
    ),
    "activations, packed matmul": (
        lambda o: headlane.matmul(X[:0, :4], PACKED, activations="int8"),
        ValueError,
        "matmul: b is a PackedMatrix of float32; with activations int8",
    ),
    "activations, not packed": (
        lambda o: headlane.linear(X[:, :4], X, out=o, activations="int8"),
        ValueError,
        "linear: packed is not packed; with activations int8 it must be a PackedMatrix of int8",
    ),
    "activations, plain matmul": (
        lambda o: headlane.matmul(X[:, :4], X, o, activations="int8"),
        ValueError,
        "matmul: b is not packed; with activations int8",
    ),
    "activations, rows": (
        lambda o: headlane.linear(
            np.zeros((1, 132001), np.float32),
            headlane.PackedMatrix(np.zeros((132001, 1), np.float32), dtype="int8"),
            activations="int8",
        ),
        ValueError,
        "linear: .*132001 rows, with activations int8 at most 132000",
    ),
    "linear threads": (
        lambda o: headlane.linear(X[:, :4], X, out=o, num_threads=-1),
        ValueError,
        "num_threads is -1",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_refused(name):
    call, exception, message = CASES[name]
    check_refused(call, exception, message)
