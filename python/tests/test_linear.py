"""PackedMatrix and linear: against float64, and with the bits of separate calls."""

import sys
from concurrent.futures import ThreadPoolExecutor

import gguf
import headlane
import layouts
import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st

ACTIVATIONS = reference.ACTIVATIONS
RNG = np.random.default_rng(0)
X, W = RNG.standard_normal((2, 3, 40), np.float32), RNG.standard_normal((40, 50), np.float32)
BIAS, RESIDUAL = RNG.standard_normal(50, np.float32), RNG.standard_normal((2, 3, 50), np.float32)
PACKED = headlane.PackedMatrix(W)


def apart(x, w, bias, activation, residual):
    """linear by separate calls, each of which rounds to float32."""
    y = headlane.matmul(x, w)
    if bias is not None:
        y = y + bias
    if activation is not None:
        y = ACTIVATIONS[activation].function(y)
    return y if residual is None else y + residual


@given(data=st.data())
def test_linear(data):
    batch = data.draw(st.lists(st.sampled_from([0, 1, 2, 3, 9]), max_size=3))
    k, n = data.draw(st.sampled_from([0, 1, 17, 64, 600])), data.draw(st.sampled_from([0, 1, 31, 32, 70]))
    x, w = data.draw(layouts.arrays((*batch, k))), data.draw(layouts.arrays((k, n)))
    bias = data.draw(st.none() | layouts.arrays((n,)))
    residual = data.draw(st.none() | layouts.arrays((*batch, n)))
    activation = data.draw(st.sampled_from([None, *ACTIVATIONS]))
    out = data.draw(layouts.outputs((*batch, n)))
    weights = headlane.PackedMatrix(w) if data.draw(st.booleans()) else w

    y = headlane.linear(x, weights, bias, activation, residual, out)
    assert out is None or y is out
    np.testing.assert_array_equal(y, apart(x, w, bias, activation, residual))
    exact, bound = reference.linear(x, w, bias, activation, residual)
    assert y.shape == exact.shape
    assert (abs(y - exact) <= bound).all()


@given(data=st.data())
def test_axes_in_any_order(data):
    """Leading axes that strides let be one, and those that they do not."""
    axes = data.draw(st.permutations(range(3)))
    shape = data.draw(st.tuples(*[st.integers(1, 4)] * 3))

    def array(last):
        there = RNG.standard_normal((*(shape[axis] for axis in axes), last), np.float32)
        return there.transpose([*np.argsort(axes), 3])

    x, residual, out = array(40), array(50), array(50)
    if data.draw(st.booleans()):
        residual = np.ascontiguousarray(residual)
    if data.draw(st.booleans()):
        out = np.empty((*shape[:2], 2 * shape[2], 50), np.float32)[..., ::2, :]
    assert headlane.linear(x, PACKED, BIAS, "silu", residual, out) is out
    np.testing.assert_array_equal(out, apart(x, W, BIAS, "silu", residual))


@pytest.mark.parametrize("shape", [(40,), (1, 40), (7, 40), (2, 3, 40), (2, 1, 0, 40), (2, 3, 2, 5, 40)])
def test_matmul_with_a_packed_matrix(shape):
    a = RNG.standard_normal(shape, np.float32)
    np.testing.assert_array_equal(headlane.matmul(a, PACKED), headlane.matmul(a, W))


@pytest.mark.parametrize("beta", [0.0, -0.5])
def test_gemm_with_everything(beta):
    a, c = X[0], RNG.standard_normal((3, 50), np.float32)
    for b in (W, PACKED):
        plain, together = c.copy(), c.copy()
        headlane.gemm(a, W, plain, alpha=1.5, beta=beta)
        options = {"bias": BIAS, "activation": "gelu", "residual": RESIDUAL[0]}
        headlane.gemm(a, b, together, alpha=1.5, beta=beta, **options)
        np.testing.assert_array_equal(together, headlane.gelu(plain + BIAS) + RESIDUAL[0])


def test_a_packed_matrix_is_a_copy():
    w = W.copy()
    before = sys.getrefcount(w)
    packed = headlane.PackedMatrix(w, num_threads=2)
    assert sys.getrefcount(w) == before
    w[:] = np.nan
    np.testing.assert_array_equal(headlane.linear(X, packed), headlane.matmul(X, W))


def test_what_a_packed_matrix_says():
    assert PACKED.shape == (40, 50)
    assert PACKED.nbytes == 4 * 40 * 64
    assert PACKED.dtype == "float32"
    assert repr(PACKED) == "PackedMatrix(shape=(40, 50), dtype='float32', nbytes=10240)"
    assert headlane.PackedMatrix(W[:0]).nbytes == 0
    for name in ("shape", "dtype", "nbytes"):
        with pytest.raises(AttributeError):
            setattr(PACKED, name, 0)


def stored(w, dtype):
    """The rules of the header, in NumPy."""
    if dtype == "float16":
        return w.astype(np.float16).astype(np.float32)
    if dtype == "bfloat16":
        bits = w.view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)
    if dtype.endswith("group32"):
        kind = gguf.GGMLQuantizationType.Q8_0 if dtype == "int8_group32" else gguf.GGMLQuantizationType.Q4_0
        rows = np.concatenate([w, np.zeros((-len(w) % 32, w.shape[1]), np.float32)]).T.copy()
        return gguf.dequantize(gguf.quantize(rows, kind), kind).T[: len(w)]
    bits = (np.abs(w).max(0) / np.float32(127)).view(np.uint32)
    scale = ((bits + 0x7F + (bits >> 8 & 1)) & 0xFFFFFF00).view(np.float32)
    return np.rint(w / scale) * scale


@pytest.mark.parametrize(
    ("dtype", "bytes_of_column"),
    [
        ("bfloat16", 1200),
        ("float16", 1200),
        ("int8", 604),
        ("int8_group32", 19 * 34),
        ("int4_group32", 19 * 18),
    ],
)
def test_stored_types(dtype, bytes_of_column):
    """Elements are rounded as stated; products have the bits of those by what they decode to."""
    w = RNG.standard_normal((600, 70), np.float32)
    packed = headlane.PackedMatrix(w, dtype=dtype)
    assert (packed.dtype, packed.nbytes) == (dtype, bytes_of_column * 96)
    decoded = packed.decoded()
    np.testing.assert_array_equal(decoded, stored(w, dtype))
    for rows in (1, 5, 40):
        x = RNG.standard_normal((rows, 600), np.float32)
        expected = headlane.linear(x, headlane.PackedMatrix(decoded), activation="gelu")
        assert headlane.linear(x, packed, activation="gelu").tobytes() == expected.tobytes()
        assert (
            headlane.gemm_gated(x, packed, packed).tobytes()
            == headlane.gemm_gated(x, decoded, decoded).tobytes()
        )


@pytest.mark.filterwarnings("ignore:nanobind")
def test_a_packed_matrix_is_made_once():
    """A PackedMatrix is immutable, since threads read it."""
    with pytest.raises((TypeError, RuntimeError)):
        PACKED.__init__(W.T)
    assert PACKED.shape == (40, 50)
    with pytest.raises(TypeError):
        type("Subclass", (headlane.PackedMatrix,), {})


def test_threads_share_a_packed_matrix(restore):
    x, w = RNG.standard_normal((300, 600), np.float32), RNG.standard_normal((600, 200), np.float32)
    packed = headlane.PackedMatrix(w)
    expected = headlane.matmul(x, w).tobytes()
    references = sys.getrefcount(packed)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: headlane.linear(x, packed).tobytes(), range(20)))
    assert results == [expected] * 20
    assert sys.getrefcount(packed) == references
    for isa in headlane.available_isas():  # packed with one, read with another
        headlane.set_isa(isa)
        assert headlane.linear(x, packed).tobytes() == expected


def test_a_write_that_would_spoil_later_rows_is_refused():
    """Here the library is called more than once, and no single call has the overlap in its operands."""
    memory = RNG.standard_normal((3, 2, 40), np.float32)
    heads = memory.reshape(3, 1, 1, 2, 40)
    with pytest.raises(ValueError, match=r"out of shape \[2, 1, 1, 2, 40\] overlaps query"):
        headlane.scaled_dot_product_attention(heads[:2], heads[2], heads[2], out=heads[1:])
    square = RNG.standard_normal((40, 40), np.float32)
    for function in (headlane.matmul, headlane.linear):
        for b in (square, headlane.PackedMatrix(square)):
            before = memory.copy()
            with pytest.raises(ValueError, match=r"out of shape \[2, 2, 40\] overlaps"):
                function(memory[:2], b, out=memory[1:])
            np.testing.assert_array_equal(memory, before)
    batch = RNG.standard_normal((5, 4, 40, 40), np.float32)[:, ::3]
    before = batch.copy()
    with pytest.raises(ValueError, match=r"matmul: out of shape \[4, 2, 40, 40\] overlaps b"):
        headlane.matmul(square, batch[:4], batch[1:])
    np.testing.assert_array_equal(batch, before)
