"""gemm_gated: against float64, and with the bits of separate calls."""

import math

import headlane
import layouts
import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st

ACTIVATIONS = reference.ACTIVATIONS
RNG = np.random.default_rng(0)
A, GATE, UP = (RNG.standard_normal(shape, np.float32) for shape in ((2, 3, 40), (40, 50), (40, 50)))
BIAS = RNG.standard_normal(50, np.float32)
PACKED = headlane.PackedMatrix(GATE), headlane.PackedMatrix(UP)


def apart(a, gate, up, gate_bias=None, up_bias=None, activation="silu"):
    """gemm_gated by separate calls, each of which rounds to float32."""
    *batch, k = a.shape
    rows = a.reshape(math.prod(batch), k)
    left, right = (headlane.gemm(rows, w).reshape(*batch, w.shape[1]) for w in (gate, up))
    left = left if gate_bias is None else left + gate_bias
    left = left if activation is None else ACTIVATIONS[activation].function(left)
    return left * (right if up_bias is None else right + up_bias)


@given(data=st.data())
def test_gemm_gated(data):
    batch = data.draw(st.lists(st.sampled_from([2, 0, 1, 3, 9]), max_size=3))
    k, n = (
        data.draw(st.sampled_from([17, 0, 1, 64, 600])),
        data.draw(st.sampled_from([31, 0, 1, 32, 70, 150])),
    )
    a = data.draw(layouts.shuffled((*batch, k)))
    gate, up = data.draw(layouts.arrays((k, n))), data.draw(layouts.arrays((k, n)))
    options = {
        "gate_bias": data.draw(st.none() | layouts.arrays((n,))),
        "up_bias": data.draw(st.none() | layouts.arrays((n,))),
        "activation": data.draw(st.sampled_from([*ACTIVATIONS, None])),
    }
    out = data.draw(st.none() | layouts.shuffled((*batch, n), broadcast=False))
    packed = data.draw(st.booleans())
    weights = (headlane.PackedMatrix(gate), headlane.PackedMatrix(up)) if packed else (gate, up)
    threads = data.draw(st.sampled_from([1, 2, 5, None]))

    y = headlane.gemm_gated(a, *weights, **options, out=out, num_threads=threads)
    assert out is None or y is out
    assert y.tobytes() == apart(a, gate, up, **options).tobytes()
    exact, bound = reference.gemm_gated(a, gate, up, *options.values())
    assert y.shape == exact.shape
    assert (abs(y - exact) <= bound).all()


@pytest.mark.parametrize("sizes", [(1, 513, 700), (200, 700, 130), (400, 1100, 64), (1030, 96, 260)], ids=str)
def test_more_than_one_block(sizes):
    """Several blocks of rows, of columns and along k, and edges of each."""
    m, k, n = sizes
    a, gate, up = (RNG.standard_normal(shape, np.float32) for shape in ((m, k), (k, n), (k, n)))
    biases = RNG.standard_normal((2, n), np.float32)
    expected = apart(a, gate, up, *biases)
    weights = headlane.PackedMatrix(gate), headlane.PackedMatrix(up)
    for threads in (1, 2, 3, None):
        for given_weights in ((gate, up), weights):
            y = headlane.gemm_gated(
                a, *given_weights, gate_bias=biases[0], up_bias=biases[1], num_threads=threads
            )
            assert y.tobytes() == expected.tobytes()


def test_one_matrix_may_be_both():
    expected = apart(A, GATE, GATE)
    for weights in (GATE, PACKED[0]):
        np.testing.assert_array_equal(headlane.gemm_gated(A, weights, weights), expected)


def test_silu_is_what_is_not_said():
    silent = headlane.gemm_gated(A, *PACKED)
    np.testing.assert_array_equal(silent, headlane.gemm_gated(A, GATE, UP, activation="silu"))
    np.testing.assert_array_equal(headlane.gemm_gated(A[0, 0], *PACKED), silent[0, 0])


def test_a_write_that_would_spoil_later_rows_is_refused():
    """Rows that do not stack are several calls, and no single one has the overlap in its operands."""
    memory = RNG.standard_normal((3, 2, 2, 40), np.float32)[:, :, :1]
    square = RNG.standard_normal((40, 40), np.float32)
    for weights in (square, headlane.PackedMatrix(square)):
        before = memory.copy()
        with pytest.raises(ValueError, match=r"gemm_gated: out of shape .* overlaps a of"):
            headlane.gemm_gated(memory[:2, ::-1], weights, weights, out=memory[1:])
        np.testing.assert_array_equal(memory, before)
