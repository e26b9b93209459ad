"""softmax and log_softmax against float64 and PyTorch: shapes, axes, layouts, special values,
masks.
"""

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


def _broadcast(data, shape):
    """A shape that broadcasts to this one."""
    sizes = [data.draw(st.sampled_from([size, size, 1])) for size in shape]
    return tuple(sizes[data.draw(st.integers(0, len(sizes))) :])


@pytest.mark.parametrize("name", FUNCTIONS)
@given(data=st.data())
def test_masked_against_float64(name, data):
    rank = data.draw(st.integers(1, 4))
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 5, 17, 20]), min_size=rank, max_size=rank)))
    axis = data.draw(st.integers(-rank, rank - 1))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    x = data.draw(layouts.arrays(shape))
    options = {"scale": data.draw(st.sampled_from([1.0, 0.125, -2.0]))}
    if data.draw(st.booleans()):
        mask = rng.random(_broadcast(data, shape)) < 0.7
        options["mask"] = (
            layouts.arranged(mask, data.draw(st.sampled_from(layouts.OUTPUT_LAYOUTS))) if mask.ndim else mask
        )
    if data.draw(st.booleans()):
        bias = rng.standard_normal(_broadcast(data, shape), np.float32)
        options["bias"] = np.where(rng.random(bias.shape) < 0.2, np.float32(-np.inf), bias)
    if data.draw(st.booleans()):
        rows = list(shape)
        del rows[axis]
        options["lengths"] = rng.integers(0, shape[axis] + 1, _broadcast(data, rows))
    if axis % rank == rank - 1 and rank >= 2 and data.draw(st.booleans()):
        options |= {"causal": True, "causal_offset": data.draw(st.integers(-3, 5))}
    out = data.draw(layouts.outputs(shape))
    y = FUNCTIONS[name](x, axis, out=out, **options)
    exact, bound = reference.masked_softmax(x, axis, log=name == "log_softmax", **options)
    masked = exact == (-np.inf if name == "log_softmax" else 0)
    np.testing.assert_array_equal(y[masked], exact[masked])
    assert (abs(y - exact)[~masked] <= bound[~masked]).all()


def test_masked_elements_have_no_influence():
    rng = np.random.default_rng(2)
    x = rng.standard_normal((6, 40), np.float32)
    mask = rng.random(x.shape) < 0.5
    poisoned = np.where(mask, x, np.float32(np.nan))
    np.testing.assert_array_equal(headlane.softmax(poisoned, mask=mask), headlane.softmax(x, mask=mask))
    np.testing.assert_array_equal(
        headlane.softmax(x, mask=mask), headlane.softmax(np.where(mask, x, np.float32(-np.inf)))
    )
    np.testing.assert_array_equal(
        headlane.softmax(x, 0, mask=mask), headlane.softmax(x.T.copy(), mask=mask.T).T
    )
    assert (headlane.softmax(x, mask=np.zeros(40, bool)) == 0).all()
    assert (headlane.log_softmax(x, lengths=0) == -np.inf).all()
    np.testing.assert_array_equal(headlane.softmax(x, mask=np.ones((1, 1), bool)), headlane.softmax(x))


def test_as_pytorch():
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(2, 3, 10, 12, generator=generator)
    mask = torch.rand(2, 1, 10, 12, generator=generator) < 0.8
    mask[..., 0] = mask[:, :, 0] = True
    for dim in (-1, -2, 0, 1):
        wanted = torch.softmax(x.masked_fill(~mask, -torch.inf), dim)
        y = headlane.softmax(x, dim, mask=mask)
        assert type(y) is torch.Tensor
        masked = ~mask.expand(x.shape)
        torch.testing.assert_close(y[~masked], wanted[~masked], atol=1e-6, rtol=1e-5, equal_nan=dim in (0, 1))
        assert (y[masked] == 0).all()
    causal = torch.ones(10, 12, dtype=torch.bool).tril(2)
    torch.testing.assert_close(
        headlane.log_softmax(x, causal=True, causal_offset=2),
        torch.log_softmax(x.masked_fill(~causal, -torch.inf), -1),
    )
    bias = torch.randn(3, 1, 12, generator=generator)
    torch.testing.assert_close(headlane.softmax(x, bias=bias), torch.softmax(x + bias, -1))
    lengths = torch.tensor([5, 12])[:, None, None]
    wanted = torch.softmax(x.masked_fill(torch.arange(12) >= lengths[..., None], -torch.inf), -1)
    torch.testing.assert_close(headlane.softmax(x, lengths=lengths), wanted)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"mask": np.ones((4, 7), bool)},
            ValueError,
            r"mask of shape \[4, 7\] does not broadcast to \[4, 8\]",
        ),
        ({"mask": np.ones((1, 4, 8), bool)}, ValueError, "mask of shape"),
        ({"mask": np.ones((4, 8), np.float32)}, TypeError, "mask .*wanted: bool"),
        ({"bias": np.ones((4, 8), bool)}, TypeError, "bias"),
        ({"bias": np.ones(4, np.float32)}, ValueError, "bias of shape"),
        ({"lengths": [1, 2, 3]}, ValueError, r"lengths of shape \[3\] does not broadcast to \[4\]"),
        ({"lengths": [1, 2, 3, 9]}, ValueError, "one of the lengths is 9, x has 8 elements"),
        ({"lengths": -1}, ValueError, "one of the lengths is -1"),
        ({"lengths": [1.0, 2, 3, 4]}, TypeError, "lengths has dtype float64"),
        ({"axis": 0, "causal": True}, ValueError, "causal is for the last"),
    ],
)
def test_errors(name, options, error, message):
    out = np.full((4, 8), 7, np.float32)
    with pytest.raises(error, match=f"^{name}: .*{message}"):
        FUNCTIONS[name](np.ones((4, 8), np.float32), out=out, **options)
    assert (out == 7).all()


def test_out_must_not_overlap_bias():
    x = np.ones((4, 8), np.float32)
    with pytest.raises(ValueError, match="out of shape .* overlaps bias"):
        headlane.softmax(x, bias=x, out=x)
