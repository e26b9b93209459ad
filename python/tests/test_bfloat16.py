"""activations="bfloat16": x is rounded to bfloat16. The bits of sums are tested in C++."""

import headlane
import numpy as np
import pytest

RNG = np.random.default_rng(0)
BFLOAT16 = {"weights": "bfloat16", "activations": "bfloat16"}


def normal(*shape):
    return RNG.standard_normal(shape, np.float32)


def rounded(x):
    """To 8 bits, ties to even."""
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def integers(*shape):
    """Products and sums of them are exact."""
    return RNG.integers(-128, 128, shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(40,), (0, 40), (5, 40), (2, 30, 40), (3, 1100)], ids=str)
def test_sums_that_are_exact(shape, restore):
    x, w = integers(*shape), integers(shape[-1], 50)
    packed = headlane.PackedMatrix(w, dtype="bfloat16")
    for isa in headlane.available_isas():
        headlane.set_isa(isa)
        np.testing.assert_array_equal(headlane.linear(x, packed, activations="bfloat16"), x @ w)
        np.testing.assert_array_equal(headlane.matmul(x, packed, activations="bfloat16"), x @ w)


def test_rows_are_rounded():
    x = normal(20, 600)
    unit = headlane.PackedMatrix(np.eye(600, dtype=np.float32), dtype="bfloat16")
    np.testing.assert_array_equal(headlane.linear(x, unit, activations="bfloat16"), rounded(x))
    assert (rounded(x) != x).any()


def test_the_error_of_rounding():
    """The bound of gemm.hpp, over a product by the stored matrix."""
    x, packed = normal(20, 600), headlane.PackedMatrix(normal(600, 70), dtype="bfloat16")
    b = packed.decoded().astype(np.float64)
    error = np.abs(headlane.linear(x, packed, activations="bfloat16") - x.astype(np.float64) @ b)
    assert (error <= (2**-8 + 2**-14) * (np.abs(x).astype(np.float64) @ np.abs(b))).all()
    assert error.max() > np.abs(headlane.linear(x, packed) - x.astype(np.float64) @ b).max()


def test_gemm_and_gated():
    x, gate, up = integers(5, 40), integers(40, 50), integers(40, 50)
    packed = [headlane.PackedMatrix(w, dtype="bfloat16") for w in (gate, up)]
    np.testing.assert_array_equal(
        headlane.gemm(x, packed[0], alpha=-0.5, activations="bfloat16"), np.float32(-0.5) * (x @ gate)
    )
    y = headlane.gemm_gated(x, *packed, activation="relu", activations="bfloat16")
    np.testing.assert_array_equal(y, np.maximum(x @ gate, 0) * (x @ up))


def test_layers():
    x, weight, bias = normal(3, 40), normal(50, 40), normal(50)
    packed = headlane.PackedMatrix(weight.T, dtype="bfloat16")
    layer = headlane.Linear({"weight": weight, "bias": bias}, **BFLOAT16)
    expected = headlane.linear(x, packed, bias, activations="bfloat16")
    np.testing.assert_array_equal(layer(x), expected)
    embedding = headlane.Embedding({"weight": weight}, tied=True, **BFLOAT16)
    np.testing.assert_array_equal(embedding.logits(x), headlane.linear(x, packed, activations="bfloat16"))
