"""gemm and matmul against float64, and matmul's shapes against NumPy's."""

import headlane
import layouts
import numpy as np
import pytest
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
    m, n, k = (draw(st.integers(0, 9) | st.sampled_from([17, 33, 65])) for _ in range(3))
    batch = draw(st.lists(st.sampled_from([2, 3, 1, 4, 0]), max_size=4))

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


def products_apart(a, b):
    """matmul by a call of gemm for each product."""
    left, right = (a[None] if a.ndim == 1 else a), (b[:, None] if b.ndim == 1 else b)
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    left, right = (np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (left, right))
    made = np.empty((*batch, left.shape[-2], right.shape[-1]), np.float32)
    for i in np.ndindex(batch):
        made[i] = headlane.gemm(left[i], right[i])
    return made.reshape(np.matmul(a, b).shape)


@given(data=st.data(), shapes=matmul_shapes(), threads=st.sampled_from([1, 2, 5, None]))
def test_matmul_has_the_bits_of_gemm(data, shapes, threads):
    a, b = (data.draw(layouts.shuffled(shape)) for shape in shapes)
    expected = products_apart(a, b)
    out = data.draw(st.none() | layouts.shuffled(expected.shape, broadcast=False)) if expected.ndim else None
    result = headlane.matmul(a, b, out, num_threads=threads)
    assert out is None or result is out
    assert result.shape == expected.shape
    assert result.tobytes() == expected.tobytes()
    exact, bound = reference.gemm(a, b)
    reference.check(result, np.asarray(exact), bound)


def normal(*shape):
    return np.random.default_rng(3).standard_normal(shape, np.float32)


BATCHES = {  # a, b, out
    "dense": (normal(2, 3, 20, 600), normal(2, 3, 600, 30), None),
    "one b": (normal(2, 3, 20, 600), normal(600, 30), None),
    "one b, rows that do not stack": (normal(4, 3, 50, 64)[:, :, 7:], normal(64, 70), None),
    "one a": (normal(20, 600), normal(5, 600, 30), None),
    "one row each": (normal(40, 1, 70), normal(40, 70, 90), None),
    "a row and a batch": (normal(70), normal(40, 70, 90), None),
    "a batch and a column": (normal(3, 40, 17, 70), normal(70), None),
    "heads": (
        normal(3, 90, 4, 64).swapaxes(1, 2),
        normal(3, 50, 4, 64).transpose(0, 2, 3, 1),
        normal(3, 90, 4, 50).swapaxes(1, 2),
    ),
    "the same a in each outer position": (normal(4, 17, 40), normal(3, 4, 40, 33), None),
    "the same b in each inner position": (normal(3, 4, 17, 40), normal(3, 1, 40, 33), None),
    "all pairs": (normal(7, 1, 33, 65), normal(1, 5, 65, 17), normal(5, 7, 33, 17).swapaxes(0, 1)),
    "four axes, none continues another": (
        normal(2, 5, 3, 4, 9, 40)[:, ::2],
        normal(4, 3, 1, 40, 33).transpose(2, 1, 0, 3, 4),
        normal(3, 4, 2, 3, 9, 66).transpose(2, 0, 3, 1, 4, 5)[..., ::2],
    ),
    "columns of c are neighbours": (normal(6, 31, 20), normal(6, 20, 47), normal(6, 47, 31).swapaxes(1, 2)),
    "many small": (normal(64, 64, 64), normal(64, 64, 64), None),
}


@pytest.mark.parametrize("name", BATCHES)
def test_batches(name):
    a, b, out = BATCHES[name]
    expected = products_apart(a, b)
    exact, bound = reference.gemm(a, b)
    reference.check(expected, exact, bound)
    for threads in (1, 2, 3, 7, None):
        if out is not None:
            out[...] = np.nan
        assert headlane.matmul(a, b, out, num_threads=threads).tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    "shapes", [((0, 3, 4), (4, 5)), ((2, 0, 3, 4), (2, 1, 4, 5)), ((3, 2, 0), (3, 0, 5))], ids=str
)
def test_batches_of_nothing(shapes):
    a, b = (np.ones(shape, np.float32) for shape in shapes)
    np.testing.assert_array_equal(headlane.matmul(a, b), np.matmul(a, b))
