"""gemm and matmul against float64, and matmul's shapes against NumPy's."""

import headlane
import layouts
import numpy as np
import reference
from hypothesis import given
from hypothesis import strategies as st

sizes = st.sampled_from([0, 1, 2, 5, 16, 17, 33, 65])
depths = st.sampled_from([0, 1, 7, 64, 511, 513, 1100])
factors = st.sampled_from([0.0, 1.0, -0.5, 1.75])


@given(data=st.data(), m=sizes, n=sizes, k=depths, alpha=factors, beta=factors)
def test_gemm(data, m, n, k, alpha, beta):
    a, b = data.draw(layouts.arrays((m, k))), data.draw(layouts.arrays((k, n)))
    c = data.draw(layouts.arrays((m, n), layouts.OUTPUT_LAYOUTS))
    exact, bound = reference.gemm(a, b, c, alpha, beta)
    if beta == 0:
        c[...] = np.nan  # must not be read
    assert headlane.gemm(a, b, c, alpha=alpha, beta=beta) is c
    reference.check(c, exact, bound)
    if beta == 0:
        np.testing.assert_array_equal(headlane.gemm(a, b, alpha=alpha), c)


def test_gemm_is_exact_on_small_integers():
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-8, 9, shape).astype(np.float32) for shape in ((37, 700), (700, 41)))
    np.testing.assert_array_equal(headlane.gemm(a, b), a.astype(np.int64) @ b.astype(np.int64))


@st.composite
def matmul_shapes(draw):
    """NumPy's cases: vectors, matrices, batches of which some axes are 1 or missing."""
    m, n, k = (draw(st.integers(0, 9)) for _ in range(3))
    batch = draw(st.lists(st.integers(0, 4), max_size=3))

    def side(vector, matrix):
        if draw(st.integers(0, 5)) == 0:
            return vector
        own = [size if draw(st.booleans()) else 1 for size in batch]
        return (*own[draw(st.integers(0, len(own))) :], *matrix)

    return side((k,), (m, k)), side((k,), (k, n))


@given(data=st.data(), shapes=matmul_shapes())
def test_matmul(data, shapes):
    a, b = (data.draw(layouts.arrays(shape)) for shape in shapes)
    exact, bound = reference.gemm(a, b)
    exact = np.asarray(exact)
    out = data.draw(layouts.outputs(exact.shape)) if exact.ndim else None
    result = headlane.matmul(a, b, out)
    assert out is None or result is out
    assert type(result) is np.ndarray
    reference.check(result, exact, bound)


def test_matmul_is_gemm():
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((2, 3, 20, 600), np.float32), rng.standard_normal((600, 30), np.float32)
    together = headlane.matmul(a, b)
    for i in np.ndindex(2, 3):
        np.testing.assert_array_equal(together[i], headlane.gemm(a[i], b))
