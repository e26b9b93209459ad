"""scaled_dot_product_attention with softcap, window, lengths, ALiBi and sinks: against float64, and
in every form they may have.
"""

import headlane
import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

SDPA = headlane.scaled_dot_product_attention
ROWS, KEYS, HEADS = 9, 13, 4
INF = np.float32(np.inf)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


# Each alone, and some together; for a batch of 3.
OPTIONS = {
    "softcap": {"softcap": 1.5},
    "window": {"window": (3, 2)},
    "left": {"window": (2, None)},
    "right": {"window": (-1, 0)},
    "window and cache": {"window": (4, 0), "causal_offset": 4},
    "window and causal": {"window": (4, None), "is_causal": True},
    "key_lengths": {"key_lengths": [13, 0, 5]},
    "query_lengths": {"query_lengths": [0, 9, 4]},
    "alibi_slopes": {"alibi_slopes": np.float32([0.5, 0.25, 0.125, 0])},
    "alibi_slopes and cache": {
        "alibi_slopes": np.float32([0.5, 0.25, 0.125, -1]),
        "causal_offset": 4,
        "is_causal": True,
    },
    "sinks": {"sinks": np.float32([0, 3, -20, 1])},
    "offsets": {"causal_offset": [0, 4, -3], "is_causal": True},
    "offsets and window": {"causal_offset": np.array([7, 1, 2]), "window": (2, 1)},
    "mask_bits": {"mask_bits": np.packbits(normal(3, 1, ROWS, KEYS) > 0, axis=-1, bitorder="little")},
    "relative_bias": {"relative_bias": normal(HEADS, 32)},
    "relative_bias, one direction": {
        "relative_bias": normal(HEADS, 7),
        "relative_max_distance": 9,
        "relative_bidirectional": False,
        "causal_offset": [4, 0, -1],
    },
    "sinks and lengths": {
        "sinks": np.float32([0, 3, -20, 1]),
        "key_lengths": [1, 0, 13],
        "query_lengths": [9, 9, 2],
    },
    "all": {
        "softcap": 2.0,
        "window": (6, 1),
        "key_lengths": [12, 13, 3],
        "query_lengths": [9, 1, 8],
        "alibi_slopes": np.float32([0.5, 0.25, 0.125, 0]),
        "sinks": np.float32([0, 3, -20, 1]),
        "is_causal": True,
        "causal_offset": [2, 4, 0],
        "mask_bits": np.packbits(normal(HEADS, 1, KEYS) > -1, axis=-1, bitorder="little"),
        "relative_bias": normal(HEADS, 8),
        "relative_max_distance": 5,
    },
}


def compare(query, key, value, mask=None, **options):
    """Result and log-sum-exp, which are within their bounds."""
    exact, bound, lse, lse_bound = reference.attention(query, key, value, mask, **options)
    got, got_lse = SDPA(query, key, value, mask, **options, return_lse=True)
    reference.check(got, exact, bound)
    reference.check(got_lse, lse, lse_bound)
    return got, got_lse


@pytest.mark.parametrize("masked", ["no mask", "bool", "float"])
@pytest.mark.parametrize("name", OPTIONS)
def test_against_float64(name, masked):
    query, key, value = (
        normal(3, HEADS, ROWS, 16),
        normal(3, HEADS, KEYS, 16, seed=1),
        normal(3, HEADS, KEYS, 8, seed=2),
    )
    mask = normal(3, 1, ROWS, KEYS, seed=3) > -1
    if masked == "float":
        mask = np.where(mask, normal(ROWS, KEYS, seed=4), -INF)
    got, lse = compare(query, key, value, None if masked == "no mask" else mask, **OPTIONS[name])
    plain, plain_lse = SDPA(query, key, value, None if masked == "no mask" else mask, return_lse=True)
    assert not np.array_equal(lse, plain_lse), "the option does nothing"
    assert not np.array_equal(got, plain)


@st.composite
def options(draw, batch, heads, rows, keys):
    """Some of the options, with random values."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = st.none() | st.integers(-1, keys + 2)
    all_of_them = {
        "softcap": lambda: float(draw(st.sampled_from([0.5, 3, 30]))),
        "window": lambda: (draw(sizes), draw(sizes)),
        "key_lengths": lambda: rng.integers(0, keys + 1, batch),
        "query_lengths": lambda: rng.integers(0, rows + 1, batch),
        "alibi_slopes": lambda: (2.0 ** -rng.integers(1, 8, heads)).astype(np.float32),
        "sinks": lambda: rng.standard_normal(heads, np.float32),
        "is_causal": lambda: True,
        "causal_offset": lambda: draw(
            st.integers(-3, keys + 3) | st.lists(st.integers(-3, keys + 3), min_size=batch, max_size=batch)
        ),
        "mask_bits": lambda: rng.integers(
            0,
            256,
            (draw(st.sampled_from([1, batch])), 1, draw(st.sampled_from([1, rows])), -(-keys // 8)),
            np.uint8,
        ),
        "relative_bias": lambda: rng.standard_normal((heads, draw(st.sampled_from([4, 32]))), np.float32),
        "relative_max_distance": lambda: draw(st.sampled_from([128, 17])),
        "relative_bidirectional": lambda: draw(st.booleans()),
        "scale": lambda: draw(st.sampled_from([0.3, -1.0])),
    }
    return {name: make() for name, make in all_of_them.items() if draw(st.booleans())}


@settings(max_examples=300)
@given(
    data=st.data(),
    batch=st.integers(0, 3),
    kv_heads=st.integers(1, 2),
    group=st.integers(1, 3),
    rows=st.sampled_from([0, 1, 5, 17, 40]),
    keys=st.sampled_from([0, 1, 7, 40, 513, 1030]),
    dim=st.sampled_from([1, 16, 33, 64, 300]),
)
def test_combinations(data, batch, kv_heads, group, rows, keys, dim):
    heads = kv_heads * group
    query = normal(batch, heads, rows, dim)
    key, value = normal(batch, kv_heads, keys, dim, seed=1), normal(batch, kv_heads, keys, 16, seed=2)
    chosen = data.draw(options(batch, heads, rows, keys))
    if "softcap" in chosen:  # a large scale would give weights that are all alike, of scores that are far off
        chosen.pop("scale", None)
    every_head = [np.repeat(x, group, axis=1) for x in (key, value)]
    got, _ = compare(query, *every_head, **chosen)
    np.testing.assert_array_equal(got, SDPA(query, key, value, enable_gqa=True, **chosen))


@pytest.mark.parametrize("name", OPTIONS)
def test_torch(name):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    arrays = [normal(3, HEADS, length, 8, seed=length) for length in (ROWS, KEYS, KEYS)]
    expected, lse = SDPA(*arrays, **OPTIONS[name], return_lse=True)
    as_tensors = {
        option: torch.tensor(value) if isinstance(value, (list, np.ndarray)) else value
        for option, value in OPTIONS[name].items()
    }
    for chosen in (OPTIONS[name], as_tensors):  # lists and NumPy's beside tensors, then tensors only
        got, got_lse = SDPA(*map(torch.from_numpy, arrays), **chosen, return_lse=True)
        assert type(got) is type(got_lse) is torch.Tensor
        np.testing.assert_array_equal(got.numpy(), expected)
        np.testing.assert_array_equal(got_lse.numpy(), lse)


@pytest.mark.parametrize(
    "form", [list, tuple, np.int8, np.uint16, np.int32, np.uint64, ">i8", "step", "reversed"]
)
def test_forms_of_lengths(form):
    x = normal(3, 2, 5, 8)
    lengths = np.array([5, 0, 3])
    expected = SDPA(x, x, x, key_lengths=lengths, query_lengths=lengths[::-1])
    if form == "step":
        given = np.repeat(lengths, 2)[::2]
    elif form == "reversed":
        given = lengths[::-1].copy()[::-1]
    else:
        given = form(lengths) if form in (list, tuple) else lengths.astype(form)
    np.testing.assert_array_equal(SDPA(x, x, x, key_lengths=given, query_lengths=given[::-1]), expected)


def test_empty_tensors_are_not_absent():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x = torch.zeros(2, 3, 4, 8)
    for name in ("key_lengths", "query_lengths", "alibi_slopes", "sinks"):
        dtype = torch.int64 if name.endswith("lengths") else torch.float32
        with pytest.raises(ValueError, match=f"{name} has 0 "):
            SDPA(x, x, x, **{name: torch.empty(0, dtype=dtype)})
    with pytest.raises(ValueError, match="key_lengths has 0 "):
        SDPA(x, x, x, key_lengths=[])


def test_other_numbers_of_axes():
    query, key, value = (
        normal(2, HEADS, ROWS, 8),
        normal(2, HEADS, KEYS, 8, seed=1),
        normal(2, HEADS, KEYS, 8, seed=2),
    )
    per_head = {
        "alibi_slopes": normal(HEADS, seed=3),
        "sinks": normal(HEADS, seed=4),
        "softcap": 1.0,
        "window": (3, 3),
    }
    expected = SDPA(query, key, value, **per_head)
    # With several batch axes the library is called several times; options for heads serve all
    # calls.
    five = (query[:, None], key[:, None], value[:, None])
    np.testing.assert_array_equal(SDPA(*five, **per_head)[:, 0], expected)
    # No batch axis: a batch of one.
    lengths = {"key_lengths": [6], "query_lengths": [7]}
    one = SDPA(query[:1], key[:1], value[:1], **per_head, **lengths)
    np.testing.assert_array_equal(SDPA(query[0], key[0], value[0], **per_head, **lengths), one[0])
    first = {**per_head, "alibi_slopes": per_head["alibi_slopes"][:1], "sinks": per_head["sinks"][:1]}
    np.testing.assert_array_equal(SDPA(query[0, 0], key[0, 0], value[0, 0], **first, **lengths), one[0, 0])
    compare(query[0], key[0], value[0], **per_head, **lengths)
    compare(query[0, 0], key[0, 0], value[0, 0], **first, **lengths)


def test_broadcast_operands():
    """The lengths are those of the batch of the result, slopes and sinks those of its heads."""
    value = normal(HEADS, KEYS, 8, seed=2)
    compare(normal(1, 1, ROWS, 8), normal(3, HEADS, KEYS, 8, seed=1), value, **OPTIONS["all"])
    compare(normal(1, HEADS, ROWS, 8), normal(3, 1, KEYS, 8, seed=1), value, **OPTIONS["all"])
    compare(normal(3, HEADS, ROWS, 8), normal(KEYS, 8, seed=1), value[:1], **OPTIONS["all"])


def test_padding_has_no_influence():
    query, key, value = normal(2, 3, ROWS, 8), normal(2, 3, KEYS, 8, seed=1), normal(2, 3, KEYS, 8, seed=2)
    lengths = {"key_lengths": [5, 13], "query_lengths": [9, 4]}
    clean = SDPA(query, key, value, **lengths)
    key[0, :, 5:], value[0, :, 5:], query[1, :, 4:] = np.nan, np.inf, np.nan
    got, lse = SDPA(query, key, value, **lengths, return_lse=True)
    np.testing.assert_array_equal(got, clean)
    assert (got[1, :, 4:] == 0).all()
    assert (lse[1, :, 4:] == -INF).all()


def test_a_window_has_the_bits_of_a_mask():
    query, key, value = normal(3, ROWS, 8), normal(3, KEYS, 8, seed=1), normal(3, KEYS, 8, seed=2)
    distance = np.arange(KEYS) - np.arange(ROWS)[:, None] - 2
    mask = (distance >= -3) & (distance <= 1)
    windowed = SDPA(query, key, value, window=(3, 1), causal_offset=2)
    np.testing.assert_array_equal(windowed, SDPA(query, key, value, mask))
    for unbounded in (None, (None, None), (-1, -1), [-1, None]):
        np.testing.assert_array_equal(SDPA(query, key, value, window=unbounded), SDPA(query, key, value))


def test_what_is_given_is_left_as_it_is():
    x = normal(2, 2, 5, 8)
    given = {"key_lengths": np.array([5, 2]), "alibi_slopes": normal(2, seed=1), "sinks": normal(2, seed=2)}
    for array in given.values():
        array.flags.writeable = False
    out = np.full_like(x, np.nan)
    assert SDPA(x, x, x, **given, out=out) is out
    compare(x, x, x, **given)
