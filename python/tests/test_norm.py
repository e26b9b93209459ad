"""layer_norm and rms_norm against float64 and PyTorch: shapes, layouts, optional arguments, in
place, large means, errors.
"""

import headlane
import layouts
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

FUNCTIONS = {"layer_norm": headlane.layer_norm, "rms_norm": headlane.rms_norm}


def exact(name, s, eps, weight=None, bias=None):
    """In float64, and the bound of norm.hpp."""
    s = s.astype(np.float64)
    n, u = s.shape[-1], 2.0**-24
    mean = s.mean(-1, keepdims=True) if name == "layer_norm" else 0.0
    root = np.sqrt(((s - mean) ** 2).mean(-1, keepdims=True) + np.float64(np.float32(eps)))
    z = (s - mean) / root
    weight = np.float64(1) if weight is None else weight.astype(np.float64)
    y = z * weight + (0 if bias is None else bias.astype(np.float64))
    if name == "rms_norm":
        return y, (np.ceil(n / 64) / 2 + 8) * u * abs(y) + 2.0**-149 * (1 + abs(weight))
    g = np.ceil(n / 64) + 11
    w = g * u * abs(s).mean(-1, keepdims=True) / root
    return y, g * u * (1 + 2 * w) ** 2 * (1 + abs(z)) * abs(weight) + u * abs(y) + 2.0**-149 * (
        1 + abs(weight)
    )


@pytest.mark.parametrize("name", FUNCTIONS)
@given(data=st.data())
def test_against_float64(name, data):
    rows = data.draw(st.lists(st.integers(0, 5), max_size=4))
    n = data.draw(st.sampled_from([0, 1, 2, 15, 17, 64, 100, 513]))
    shape = (*rows, n)
    x = data.draw(layouts.arrays(shape))
    options = {"eps": data.draw(st.sampled_from([1e-5, 1e-6, 0.5]))}
    vector = layouts.arrays((n,), ("dense", "step", "reversed", "offset"))
    if data.draw(st.booleans()):
        options["weight"] = data.draw(vector)
    if name == "layer_norm" and data.draw(st.booleans()):
        options["bias"] = data.draw(vector)
    s, residual = x, None
    if data.draw(st.booleans()):
        residual = data.draw(layouts.arrays(shape))
        s = x + residual
    out, before = data.draw(layouts.outputs(shape)), x.copy()
    y = FUNCTIONS[name](x, residual=residual, out=out, **options)
    assert out is None or y is out
    assert y.dtype == np.float32
    assert y.shape == x.shape
    again, total = FUNCTIONS[name](x, residual=residual, return_sum=True, **options)
    np.testing.assert_array_equal(again, y)
    np.testing.assert_array_equal(total, s)
    np.testing.assert_array_equal(x, before)
    if x.size:
        wanted, bound = exact(name, s, **options)
        assert (abs(y - wanted) <= bound).all()


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("layout", layouts.OUTPUT_LAYOUTS)
def test_in_place(name, layout):
    rng = np.random.default_rng(1)
    values, others = rng.standard_normal((2, 5, 40), np.float32)
    x, r = layouts.arranged(values.copy(), layout), layouts.arranged(others.copy(), layout)
    wanted = FUNCTIONS[name](values, residual=others)
    y, total = FUNCTIONS[name](x, residual=r, return_sum=r, out=x)
    assert y is x
    assert total is r
    np.testing.assert_array_equal(x, wanted)
    np.testing.assert_array_equal(r, values + others)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("mean", "spread"), [(0, 1), (3, 0.1), (1e4, 1), (-1, 1e-4)])
@pytest.mark.parametrize("n", [64, 512, 768, 4096])
def test_as_pytorch(name, mean, spread, n):
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(3)
    x = mean + spread * torch.randn(20, n, generator=generator)
    weight, bias = torch.randn(2, n, generator=generator)
    if name == "layer_norm":
        ours = headlane.layer_norm(x, weight, bias)
        theirs, wanted = (
            torch.nn.functional.layer_norm(x.to(t), (n,), weight.to(t), bias.to(t))
            for t in (torch.float32, torch.float64)
        )
    else:
        ours = headlane.rms_norm(x, weight, 1e-6)
        theirs, wanted = (
            torch.nn.functional.rms_norm(x.to(t), (n,), weight.to(t), 1e-6)
            for t in (torch.float32, torch.float64)
        )
    assert type(ours) is torch.Tensor
    assert abs(ours - wanted).max() <= 2 * abs(theirs - wanted).max()


def test_special_values():
    x = np.ones((5, 20), np.float32)
    x[:, ::2] = 2
    x[0, 3], x[1, 4], x[2, 5], x[3, 6] = np.nan, np.inf, -np.inf, 1e30
    for function in FUNCTIONS.values():
        y = function(x)
        assert np.isnan(y[:4]).all()
        assert np.isfinite(y[4]).all()


X = np.ones((4, 8), np.float32)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"weight": np.ones(7, np.float32)}, ValueError, r"weight has shape \[7\], wanted: \[8\]"),
        ({"weight": np.ones((1, 8), np.float32)}, ValueError, "weight has shape"),
        ({"weight": np.ones((8, 1), np.float32)}, ValueError, r"weight has shape \[8, 1\], wanted: \[8\]"),
        ({"weight": np.ones(8)}, TypeError, "weight .*float64"),
        (
            {"residual": np.ones((4, 7), np.float32)},
            ValueError,
            "residual has 7 elements along axis 1, out has 8",
        ),
        ({"residual": np.ones(8, np.float32)}, ValueError, "residual has rank 1, out has rank 2"),
        ({"residual": np.ones((4, 8))}, TypeError, "residual .*float64"),
        ({"return_sum": np.ones((4, 7), np.float32)}, ValueError, "out has shape"),
        ({"eps": -1.0}, ValueError, "eps is -1"),
        ({"num_threads": -1}, ValueError, "num_threads is -1"),
    ],
)
def test_errors(name, options, error, message):
    out = np.full((4, 8), 7, np.float32)
    with pytest.raises(error, match=f"^{name}: .*{message}"):
        FUNCTIONS[name](X, out=out, **options)
    assert (out == 7).all()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_out_must_not_be_the_sum(name):
    x = X.copy()
    with pytest.raises(ValueError, match="out of shape .* overlaps sum"):
        FUNCTIONS[name](x, return_sum=x, out=x)
    with pytest.raises(ValueError, match="x has no axis"):
        FUNCTIONS[name](np.array(1, np.float32))
