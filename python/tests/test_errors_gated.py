"""Illegal calls of gemm_gated, and of batches of products."""

import headlane
import numpy as np
import pytest
from illegal_calls import MISALIGNED, PACKED, X4, X, check_refused

CASES = {
    "gated sizes": (
        lambda o: headlane.gemm_gated(X, PACKED, PACKED, out=o),
        ValueError,
        r"gemm_gated: a of shape \[4, 8\] has 8 columns, gate has 4 rows",
    ),
    "gated rows of up": (
        lambda o: headlane.gemm_gated(X[:, :4], X, X.T, out=o),
        ValueError,
        "a .* has 4 columns, up has 8 rows",
    ),
    "gated columns of up": (
        lambda o: headlane.gemm_gated(X[:, :4], X, X[:, :7], out=o),
        ValueError,
        "gemm_gated: gate has 8 columns, up has 7",
    ),
    "gated, one packed": (
        lambda o: headlane.gemm_gated(X[:, :4], PACKED, X, out=o),
        TypeError,
        "gemm_gated: of gate and up one is a PackedMatrix",
    ),
    "gated, the other packed": (
        lambda o: headlane.gemm_gated(X[:, :4], X, PACKED, out=o),
        TypeError,
        "of gate and up one is a PackedMatrix",
    ),
    "gated list": (lambda o: headlane.gemm_gated(X[:, :4], X, [1.0], out=o), TypeError, "up has type list"),
    "gated weight": (
        lambda o: headlane.gemm_gated(X[:, :4], X4, X, out=o),
        ValueError,
        "gate has shape .* must be a matrix",
    ),
    "gated float64": (
        lambda o: headlane.gemm_gated(X[:, :4], X, X.astype(np.float64), out=o),
        TypeError,
        r"up .*float64.*up\.astype",
    ),
    "gated no axis": (
        lambda o: headlane.gemm_gated(np.array(1, np.float32), PACKED, PACKED),
        ValueError,
        "a has no axis",
    ),
    "gated bias": (
        lambda o: headlane.gemm_gated(X[:, :4], PACKED, PACKED, gate_bias=X[0, :7], out=o),
        ValueError,
        r"gate_bias has shape \[7\], the result \[4, 8\]: wanted \[8\]",
    ),
    "gated bias rank": (
        lambda o: headlane.gemm_gated(X[:, :4], X, X, up_bias=X[:1], out=o),
        ValueError,
        r"up_bias has shape \[1, 8\]",
    ),
    "gated bias is out": (
        lambda o: headlane.gemm_gated(X[:, :4], X, X, up_bias=o[1], out=o),
        ValueError,
        "out of shape .* overlaps up_bias",
    ),
    "gated misaligned": (
        lambda o: headlane.gemm_gated(X[:, :4], MISALIGNED, X, out=o),
        ValueError,
        "gemm_gated: gate is misaligned",
    ),
    "gated out": (
        lambda o: headlane.gemm_gated(X.T, PACKED, PACKED, out=o),
        ValueError,
        r"out has shape \[4, 8\], the result \[8, 8\]",
    ),
    "gated activation": (
        lambda o: headlane.gemm_gated(X[:, :4], PACKED, PACKED, activation="swiglu", out=o),
        ValueError,
        "gemm_gated: activation is 'swiglu'; there are relu",
    ),
    "gated activations": (
        lambda o: headlane.gemm_gated(
            X[:, :4], headlane.PackedMatrix(X, dtype="int8"), PACKED, out=o, activations="int8"
        ),
        ValueError,
        "gemm_gated: up is a PackedMatrix of float32; with activations int8 it must be a PackedMatrix of int8",
    ),
    "gated threads": (
        lambda o: headlane.gemm_gated(X[:, :4], X, X, out=o, num_threads=-1),
        ValueError,
        "gemm_gated: num_threads is -1, the minimum is 0",
    ),
    "batch misaligned": (
        lambda o: headlane.matmul(X4[..., :4], MISALIGNED, np.full((2, 6, 4, 8), np.nan, np.float32)),
        ValueError,
        "matmul: .*b is misaligned",
    ),
    "batch overlaps itself": (
        lambda o: headlane.matmul(
            X4[..., :4], X, np.lib.stride_tricks.as_strided(o, X4.shape, (0, 0, 32, 4))
        ),
        ValueError,
        r"matmul: out of shape \[2, 6, 4, 8\] overlaps itself",
    ),
    "batch out shape": (
        lambda o: headlane.matmul(X4[..., :4], X, o),
        ValueError,
        r"out has shape \[4, 8\], the result \[2, 6, 4, 8\]",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_refused(name):
    call, exception, message = CASES[name]
    check_refused(call, exception, message)
