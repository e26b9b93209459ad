"""The activations against float64: shapes, layouts, the whole range of floats, special values."""

import headlane
import layouts
import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st

ACTIVATIONS = reference.ACTIVATIONS


def check(name, x, y):
    exact, bound = reference.activation(name, x)
    assert y.dtype == np.float32
    assert y.shape == exact.shape
    error = abs(y - exact)
    assert (error <= bound).all(), x[error > bound][:5]


@pytest.mark.parametrize("name", ACTIVATIONS)
@given(data=st.data())
def test_against_float64(name, data):
    shape = tuple(data.draw(st.lists(st.sampled_from([0, 1, 2, 3, 5, 17, 40]), min_size=1, max_size=4)))
    x = data.draw(layouts.arrays(shape))
    out = data.draw(layouts.outputs(shape))
    before = x.copy()
    y = ACTIVATIONS[name].function(x, out=out)
    assert out is None or y is out
    assert type(y) is np.ndarray
    np.testing.assert_array_equal(x, before)
    check(name, x, y)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_whole_range(name):
    """Every 65521st float, a prime: all exponents and both signs."""
    x = np.arange(0, 2**32, 65521, dtype=np.uint64).astype(np.uint32).view(np.float32)
    with np.errstate(over="ignore"):
        x = x[abs(x) < 1e18]  # the cube in gelu_tanh stays finite
    check(name, x, ACTIVATIONS[name].function(x))


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("layout", layouts.OUTPUT_LAYOUTS)
def test_in_place(name, layout):
    values = np.random.default_rng(1).standard_normal((5, 40), np.float32)
    x = layouts.arranged(values.copy(), layout)
    assert ACTIVATIONS[name].function(x, out=x) is x
    np.testing.assert_array_equal(x, ACTIVATIONS[name].function(values))


LIMITS = {  # at -inf, inf
    "relu": (0, np.inf),
    "gelu": (0, np.inf),
    "gelu_tanh": (0, np.inf),
    "silu": (0, np.inf),
    "sigmoid": (0, 1),
    "tanh": (-1, 1),
    "erf": (-1, 1),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_special_values(name):
    y = ACTIVATIONS[name].function(np.array([-np.inf, np.inf, np.nan], np.float32))
    assert tuple(y[:2]) == LIMITS[name]
    assert np.isnan(y[2])


def test_an_array_without_axes():
    y = headlane.relu(np.array(-1, np.float32))
    assert y.shape == ()
    assert y == 0
