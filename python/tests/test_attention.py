"""scaled_dot_product_attention against float64: shapes, broadcasting, layouts, masks, and every
option.
"""

import headlane
import layouts
import numpy as np
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

lengths = st.sampled_from([0, 1, 2, 5, 16, 17, 40])
key_lengths = lengths | st.sampled_from([511, 513, 1030])
dims = st.sampled_from([1, 2, 7, 16, 32, 33, 64])
INF = np.float32(np.inf)


@st.composite
def batch_shapes(draw):
    """Three shapes that broadcast, of 0 to 4 axes, and the number of axes that a mask may have."""
    batch = draw(st.lists(st.integers(0, 3), max_size=4))

    def partial(axes):
        own = [size if draw(st.booleans()) else 1 for size in axes]
        return tuple(own[draw(st.integers(0, len(own))) :])

    return tuple(batch), partial(batch), partial(batch), partial


@st.composite
def masks(draw, batch, rows, columns, partial):
    """None, or a mask of bool or float32 that broadcasts, some keys of which are masked, perhaps
    for whole rows.
    """
    kind = draw(st.sampled_from(["none", "bool", "float"]))
    if kind == "none":
        return None
    shape = draw(st.sampled_from([(rows, columns), (1, columns), (rows, 1), (1, 1), (columns,), (1,)]))
    if len(shape) == 2:
        shape = (*partial(batch), *shape)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    visible = rng.random(shape) < draw(st.sampled_from([0.1, 0.5, 0.9]))
    if kind == "float":
        visible = np.where(visible, rng.standard_normal(shape, np.float32), -INF).astype(np.float32)
    return layouts.arranged(visible, draw(st.sampled_from(layouts.LAYOUTS)))


@settings(max_examples=300)
@given(data=st.data(), rows=lengths, keys=key_lengths, dim=dims, value_dim=dims)
def test_against_float64(data, rows, keys, dim, value_dim):
    batch, of_key, of_value, partial = data.draw(batch_shapes())
    query = data.draw(layouts.arrays((*batch, rows, dim)))
    key, value = (
        data.draw(layouts.arrays((*of_key, keys, dim))),
        data.draw(layouts.arrays((*of_value, keys, value_dim))),
    )
    mask = data.draw(masks(batch, rows, keys, partial))
    options = {"is_causal": data.draw(st.booleans()), "scale": data.draw(st.sampled_from([None, 0.3, -1.0]))}
    options["causal_offset"] = data.draw(st.integers(-5, 45)) if options["is_causal"] else 0
    result_shape = (*batch, rows, value_dim)
    out = data.draw(layouts.outputs(result_shape))

    exact, bound, lse, lse_bound = reference.attention(query, key, value, mask, **options)
    got, got_lse = headlane.scaled_dot_product_attention(
        query, key, value, mask, **options, return_lse=True, out=out
    )
    assert out is None or got is out
    reference.check(got, np.broadcast_to(exact, result_shape), bound)
    reference.check(got_lse, np.broadcast_to(lse, result_shape[:-1]), lse_bound)
    np.testing.assert_array_equal(
        got, headlane.scaled_dot_product_attention(query, key, value, mask, **options)
    )


@given(data=st.data(), kv_heads=st.integers(1, 3), group=st.integers(1, 4), rows=lengths, keys=key_lengths)
def test_grouped_heads(data, kv_heads, group, rows, keys):
    query = data.draw(layouts.arrays((2, kv_heads * group, rows, 16)))
    key, value = (
        data.draw(layouts.arrays((2, kv_heads, keys, 16))),
        data.draw(layouts.arrays((1, kv_heads, keys, 8))),
    )
    mask = data.draw(masks((2, kv_heads * group), rows, keys, lambda axes: tuple(axes)))
    all_heads = [np.repeat(x, group, axis=1) for x in (key, value)]
    exact, bound, _, _ = reference.attention(query, *all_heads, mask)
    got = headlane.scaled_dot_product_attention(query, key, value, mask, enable_gqa=True)
    reference.check(got, exact, bound)
    np.testing.assert_array_equal(got, headlane.scaled_dot_product_attention(query, *all_heads, mask))


def test_a_masked_key_has_no_influence():
    rng = np.random.default_rng(4)
    query, key, value = (rng.standard_normal((2, 9, 16), np.float32) for _ in range(3))
    mask = rng.random((9, 9)) < 0.5
    mask[:, 4], mask[:, 0] = False, True
    clean = headlane.scaled_dot_product_attention(query, key, value, mask)
    key[:, 4], value[:, 4] = np.nan, np.inf
    np.testing.assert_array_equal(clean, headlane.scaled_dot_product_attention(query, key, value, mask))
    bias = np.where(mask, np.float32(0), -INF)
    np.testing.assert_array_equal(clean, headlane.scaled_dot_product_attention(query, key, value, bias))


def test_a_row_without_visible_keys_is_zero():
    x = np.ones((3, 4), np.float32)
    mask = np.array([[True] * 3, [False] * 3, [True] * 3])
    out, lse = headlane.scaled_dot_product_attention(x, x, x, mask, return_lse=True)
    assert (out[1] == 0).all()
    assert lse[1] == -INF
    assert (out[[0, 2]] == 1).all()


def test_a_nan_spreads_to_its_row_only():
    rng = np.random.default_rng(5)
    query, key, value = (rng.standard_normal((9, 16), np.float32) for _ in range(3))
    clean = headlane.scaled_dot_product_attention(query, key, value)
    query[3, 2] = np.nan
    got = headlane.scaled_dot_product_attention(query, key, value)
    assert np.isnan(got[3]).all()
    others = np.arange(9) != 3
    np.testing.assert_array_equal(got[others], clean[others])
