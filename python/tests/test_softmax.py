"""softmax and log_softmax against float64: shapes, axes, layouts, special values."""

import headlane
import layouts
import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st

FUNCTIONS = {"softmax": headlane.softmax, "log_softmax": headlane.log_softmax}


@pytest.mark.parametrize("name", FUNCTIONS)
@given(data=st.data())
def test_against_float64(name, data):
    rank = data.draw(st.integers(1, 5))
    shape = tuple(data.draw(st.lists(st.integers(0, 7), min_size=rank, max_size=rank)))
    axis = data.draw(st.integers(-rank, rank - 1))
    if data.draw(st.booleans()):
        shape = (*shape[:axis], data.draw(st.sampled_from([1, 16, 17, 100, 513])), *shape[axis:][1:])
    scale = data.draw(st.sampled_from([1.0, 0.125, -2.0, 5.0]))
    x = data.draw(layouts.arrays(shape))
    out = data.draw(layouts.outputs(shape))
    before = x.copy()
    y = FUNCTIONS[name](x, axis, scale=scale, out=out)
    assert out is None or y is out
    assert type(y) is np.ndarray
    np.testing.assert_array_equal(x, before)
    if x.size:
        exact, bound = reference.softmax(x, axis, scale, log=name == "log_softmax")
        reference.check(y, exact, bound)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("layout", layouts.OUTPUT_LAYOUTS)
def test_in_place(name, layout):
    values = np.random.default_rng(1).standard_normal((5, 40), dtype=np.float32)
    x = layouts.arranged(values.copy(), layout)
    assert FUNCTIONS[name](x, out=x) is x
    np.testing.assert_array_equal(x, FUNCTIONS[name](values))


def test_special_values():
    x = np.zeros((5, 20), np.float32)
    x[0, 3], x[1, 4], x[2], x[3, 5] = np.nan, np.inf, -np.inf, -np.inf
    y = headlane.softmax(x)
    assert np.isnan(y[:3]).all()
    assert y[3, 5] == 0
    assert np.isfinite(y[3:]).all()
    assert headlane.log_softmax(x)[3, 5] == -np.inf
