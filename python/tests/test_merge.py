"""merge: parts of attention against the whole, within the bound and, on the grid of 512 keys, by
bits.
"""

import headlane
import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

SDPA = headlane.scaled_dot_product_attention
U = reference.U


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def part(query, key, value, keys, mask=None, **options):
    return SDPA(
        query, key[..., keys, :], value[..., keys, :], None if mask is None else mask[..., keys], **options
    )


@settings(max_examples=100)
@given(
    data=st.data(),
    batch=st.lists(st.integers(0, 3), max_size=3),
    rows=st.sampled_from([0, 1, 7, 100]),
    keys=st.sampled_from([1, 40, 700]),
)
def test_against_float64(data, batch, rows, keys):
    query, key, value = (normal(*batch, n, d, seed=n) for n, d in ((rows, 16), (keys, 16), (keys, 5)))
    mask = normal(rows, keys, seed=3) > data.draw(st.sampled_from([-1, 1]))
    cuts = sorted({0, keys, *data.draw(st.lists(st.integers(0, keys), max_size=4))})
    heads = batch[-1] if batch else 1
    sinks = data.draw(st.sampled_from([None, normal(heads, seed=4)]))
    parts = [
        part(
            query,
            key,
            value,
            slice(a, b),
            mask,
            **{data.draw(st.sampled_from(["return_lse", "return_sum"])): True},
        )
        for a, b in zip(cuts, cuts[1:])
    ]
    got, lse = headlane.merge(parts, sinks=sinks, return_lse=True)
    exact, bound, exact_lse, lse_bound = reference.attention(query, key, value, mask, sinks=sinks)
    # The errors of the parts and of merging: see merge.hpp.
    largest = max((np.abs(p[1][np.isfinite(p[1])]).max(initial=0) for p in parts), default=0)
    more = (2 * largest + 8 * len(parts) + 8) * U
    reference.check(got, exact, 2 * bound + more * abs(value).max(initial=0))
    reference.check(lse, exact_lse, 2 * lse_bound + more)
    np.testing.assert_array_equal(headlane.merge(parts, sinks=sinks), got)


@pytest.mark.parametrize("keys", [513, 1024, 1700])
@pytest.mark.parametrize("causal", [False, True])
def test_the_bits_of_the_whole(keys, causal):
    q, k, v = normal(2, 3, 30, 64), normal(2, 3, keys, 64, seed=1), normal(2, 3, keys, 32, seed=2)
    sinks = normal(3, seed=3)
    parts = [
        part(q, k, v, slice(at, at + 512), is_causal=causal, causal_offset=keys - 40 - at, return_sum=True)
        for at in range(0, keys, 512)
    ]
    whole = {"is_causal": causal, "causal_offset": keys - 40, "return_lse": True}
    for sink in (None, sinks):
        for got, wanted in zip(
            headlane.merge(parts, sinks=sink, return_lse=True), SDPA(q, k, v, sinks=sink, **whole)
        ):
            np.testing.assert_array_equal(got, wanted)
    # The result is a partial result again.
    first = headlane.merge(parts[:2], return_sum=True)
    assert len(first) == 3
    np.testing.assert_array_equal(headlane.merge([first, *parts[2:]]), headlane.merge(parts))


def test_any_strides_axes_and_out():
    shape = (2, 3, 4, 9, 8)
    parts = [(normal(*shape, seed=s), normal(*shape[:-1], seed=s + 1)) for s in (0, 2)]
    expected = headlane.merge(parts)
    other = [(np.asfortranarray(out), lse[..., ::-1].copy()[..., ::-1]) for out, lse in parts]
    out = np.full((9, 8, 2, 3, 4), np.nan, np.float32).transpose(2, 3, 4, 0, 1)
    assert headlane.merge(other, out=out) is out
    np.testing.assert_array_equal(out, expected)
    weights = np.exp(np.stack([lse for _, lse in parts], -1).astype(np.float64))
    weights /= weights.sum(-1, keepdims=True)
    exact = sum(w[..., None] * x for w, (x, _) in zip(np.moveaxis(weights, -1, 0), parts))
    np.testing.assert_allclose(expected, exact, rtol=1e-4, atol=1e-5)
    for at in ((0,), (1, 2), (0, 1, 3)):  # with fewer axes
        np.testing.assert_array_equal(
            headlane.merge([(x[at], y[at]) for x, y in parts], num_threads=1), expected[at]
        )


def test_a_row_that_no_part_sees():
    x = normal(3, 4)
    nothing = SDPA(x, x, x, key_lengths=[0], return_lse=True)
    out, lse = headlane.merge([nothing, nothing], return_lse=True)
    assert (out == 0).all()
    assert (lse == -np.inf).all()
    whole = SDPA(x, x, x, return_lse=True)
    for parts in ([nothing, whole], [whole, nothing], [whole]):
        np.testing.assert_allclose(headlane.merge(parts), whole[0], rtol=1e-6)


def test_torch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x = normal(2, 9, 8)
    parts = [part(x, x, x, s, return_sum=True) for s in (slice(4), slice(4, 9))]
    got = headlane.merge([tuple(map(torch.from_numpy, p)) for p in parts])
    assert type(got) is torch.Tensor
    np.testing.assert_array_equal(got.numpy(), headlane.merge(parts))


OUT, LSE = normal(3, 4, 8), normal(3, 4)
BATCHES = normal(3, 1, 3, 4, 8)
CASES = {
    "none": ([], {}, ValueError, "parts is empty"),
    "no tuple": ([7], {}, ValueError, r"parts\[0\] is neither \(out, lse\)"),
    "one array": ([(OUT, LSE), (OUT,)], {}, ValueError, r"parts\[1\] is neither \(out, lse\)"),
    "no arrays": (7, {}, TypeError, "merge: parts is 7; wanted: a sequence of tuples"),
    "float64": ([(OUT, LSE.astype(np.float64))], {}, TypeError, r"parts\[0\]\.lse .*float64"),
    "list": ([(OUT, LSE, [1])], {}, TypeError, r"parts\[0\]\.sum has type list"),
    "vector": ([(LSE[0], LSE[0, 0])], {}, ValueError, r"parts\[0\]\.out has shape \[4\]"),
    "other shape": (
        [(OUT, LSE), (OUT[:2], LSE)],
        {},
        ValueError,
        r"parts\[1\]\.out has shape \[2, 4, 8\], parts\[0\]",
    ),
    "lse": (
        [(OUT, LSE[:, :3])],
        {},
        ValueError,
        r"parts\[0\]\.lse has shape \[3, 3\], parts\[0\]\.out has \[3, 4, 8\]",
    ),
    "sinks": ([(OUT, LSE)], {"sinks": LSE[0]}, ValueError, "sinks has 4 .*3 "),
    "sinks and sum": ([(OUT, LSE)], {"sinks": LSE[:, 0], "return_sum": True}, ValueError, "sinks"),
    "out": ([(OUT, LSE)], {"out": OUT}, ValueError, r"out .*overlaps parts\[0\]\.out"),
    "out, 5 axes": (
        [(OUT[None, None], LSE[None, None])],
        {"out": OUT[None, None]},
        ValueError,
        r"out .*overlaps parts\[0\]\.out",
    ),
    "out over the next batch element": (
        [(BATCHES[:2], normal(2, 1, 3, 4))],
        {"out": BATCHES[1:]},
        ValueError,
        r"out .*overlaps parts\[0\]\.out",
    ),
    "threads": ([(OUT, LSE)], {"num_threads": -1}, ValueError, "num_threads is -1"),
}


@pytest.mark.parametrize("name", CASES)
def test_errors(name):
    parts, options, error, message = CASES[name]
    with pytest.raises(error, match=message):
        headlane.merge(parts, **options)
