"""The package is bit-identical to the C++ interface for every layout: headlane_same_bits computes
each case too.
"""

import os
import subprocess

import headlane
import layouts
import numpy as np
import pytest
import reference

PROGRAM = os.environ.get("HEADLANE_SAME_BITS")
pytestmark = pytest.mark.skipif(
    not PROGRAM, reason="HEADLANE_SAME_BITS names no program; ./dev test-python builds it"
)


def library(*arguments, operands):
    """The library's outputs, all in one array."""
    data = b"".join(np.ascontiguousarray(x, np.float32).tobytes() for x in operands)
    words = [PROGRAM, *(str(int(a) if isinstance(a, bool) else a) for a in arguments)]
    return np.frombuffer(
        subprocess.run(words, input=data, stdout=subprocess.PIPE, check=True).stdout, np.float32
    )


def equal(actual, expected):
    """Bit by bit; every NaN is the same one."""
    actual = np.concatenate([np.ravel(x) for x in actual])
    assert actual.size == expected.size > 0
    np.testing.assert_array_equal(actual.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("layout", layouts.OUTPUT_LAYOUTS)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (13, 35, 17), (64, 64, 512), (33, 129, 1100)], ids=str)
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (0.75, -1.5)])
def test_gemm(sizes, alpha, beta, layout):
    m, n, k = sizes
    rng = np.random.default_rng(6)
    a, b, c = (rng.standard_normal(shape, np.float32) for shape in ((m, k), (k, n), (m, n)))
    expected = library("gemm", m, n, k, alpha, beta, operands=(a, b, c))
    a, b, c = (layouts.arranged(x.copy(), layout) for x in (a, b, c))
    equal([headlane.gemm(a, b, c, alpha=alpha, beta=beta)], expected)


@pytest.mark.parametrize("layout", layouts.LAYOUTS[:-1])
@pytest.mark.parametrize("activation", [None, *reference.ACTIVATIONS])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (13, 35, 17), (33, 129, 1100)], ids=str)
def test_linear(sizes, activation, layout):
    m, n, k = sizes
    rng = np.random.default_rng(9)
    operands = [rng.standard_normal(shape, np.float32) for shape in ((m, k), (k, n), (n,), (m, n))]
    expected = library("linear", m, n, k, activation or "none", operands=operands)
    x, w, bias, residual = (layouts.arranged(o, layout) for o in operands)
    for weights in (w, headlane.PackedMatrix(w)):
        equal([headlane.linear(x, weights, bias, activation, residual)], expected)
        options = {"bias": bias, "activation": activation, "residual": residual}
        equal([headlane.gemm(x, weights, **options)], expected)


@pytest.mark.parametrize("layout", layouts.LAYOUTS[:-1])
@pytest.mark.parametrize("activation", reference.ACTIVATIONS)
def test_activations(activation, layout):
    x = 4 * np.random.default_rng(10).standard_normal((7, 911), np.float32)
    expected = library("activate", x.size, activation, operands=[x])
    equal([reference.ACTIVATIONS[activation].function(layouts.arranged(x, layout))], expected)


@pytest.mark.parametrize("layout", layouts.LAYOUTS[:-1])
@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("n", [1, 37, 512, 5000])
def test_softmax(n, log, layout):
    x = np.random.default_rng(7).standard_normal((5, n), np.float32)
    expected = library("softmax", 5, n, 0.5, log, operands=[x])
    function = headlane.log_softmax if log else headlane.softmax
    equal([function(layouts.arranged(x, layout), scale=0.5)], expected)
    equal([function(layouts.arranged(x, layout).T, 0, scale=0.5).T], expected)


SIZES = [  # batch, heads, kv_heads, q_length, kv_length, dim, value_dim, causal offset or None
    (1, 8, 8, 64, 64, 64, 64, None),
    (2, 6, 2, 17, 50, 16, 40, 20),
    (1, 2, 2, 1, 1500, 64, 64, None),
    (2, 1, 1, 30, 1100, 32, 32, 1050),
    (3, 4, 1, 9, 21, 5, 1, -3),
]


@pytest.mark.parametrize("layout", layouts.LAYOUTS[:-1])
@pytest.mark.parametrize("mask", ["none", "bool", "bias"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_attention(sizes, mask, layout):
    batch, heads, kv_heads, rows, keys, dim, value_dim, offset = sizes
    rng = np.random.default_rng(8)
    shapes = ((batch, heads, rows, dim), (batch, kv_heads, keys, dim), (batch, kv_heads, keys, value_dim))
    operands = [rng.standard_normal(shape, np.float32) for shape in shapes]
    full = np.float32(rng.random((batch, heads, rows, keys)) < 0.7)
    if mask == "bias":
        full = np.where(full == 0, -np.float32(np.inf), rng.standard_normal(full.shape, np.float32))
    causal = offset is not None
    given = operands if mask == "none" else [*operands, full]
    expected = library("attention", *sizes[:-1], causal, offset or 0, mask, operands=given)

    operands = [layouts.arranged(x, layout) for x in operands]
    attn_mask = {
        "none": None,
        "bool": layouts.arranged(full != 0, layout),
        "bias": layouts.arranged(full, layout),
    }[mask]
    options = {"is_causal": causal, "causal_offset": offset or 0, "enable_gqa": True, "return_lse": True}
    equal(headlane.scaled_dot_product_attention(*operands, attn_mask, **options), expected)
