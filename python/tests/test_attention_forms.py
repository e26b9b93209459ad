"""The same attention in other forms, bit by bit: packed masks, variable-length batches, offsets for
each batch element, T5's bias.
"""

import headlane
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

SDPA = headlane.scaled_dot_product_attention


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def packed(mask):
    return np.packbits(mask, axis=-1, bitorder="little")


@pytest.mark.parametrize("shape", [(2, 3, 9), (2, 1, 9), (1, 3, 1), (1, 1, 1), (9,), (1,), ()])
@pytest.mark.parametrize("keys", [0, 1, 8, 13, 600])
def test_packed_mask(shape, keys):
    query, key, value = normal(2, 3, 9, 8), normal(2, 3, keys, 8, seed=1), normal(2, 3, keys, 5, seed=2)
    mask = normal(*shape, keys, seed=3) > 0
    expected = SDPA(query, key, value, mask, return_lse=True)
    strided = np.repeat(packed(mask), 2, axis=-1)[..., ::2]
    for bits in (packed(mask), strided, packed(mask).copy(order="F")):
        for got, wanted in zip(SDPA(query, key, value, mask_bits=bits, return_lse=True), expected):
            np.testing.assert_array_equal(got, wanted)
    # Together with another mask, both apply.
    other = normal(9, keys, seed=4) > -1
    np.testing.assert_array_equal(
        SDPA(query, key, value, other, mask_bits=packed(mask)), SDPA(query, key, value, other & mask)
    )


def test_packed_mask_in_pytorch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x, mask = normal(2, 3, 9, 8), normal(2, 1, 9, 9, seed=1) > 0
    got = SDPA(
        torch.from_numpy(x),
        torch.from_numpy(x),
        torch.from_numpy(x),
        mask_bits=torch.from_numpy(packed(mask)),
    )
    np.testing.assert_array_equal(got.numpy(), SDPA(x, x, x, mask))


def starts_of(lengths):
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))


def drawn_options(data, heads):
    return {
        "enable_gqa": True,
        "is_causal": data.draw(st.booleans()),
        "window": data.draw(st.sampled_from([None, (5, 2)])),
        "alibi_slopes": data.draw(st.sampled_from([None, normal(heads, seed=3)])),
        "sinks": data.draw(st.sampled_from([None, normal(heads, seed=4)])),
        "relative_bias": data.draw(st.sampled_from([None, normal(heads, 32, seed=5)])),
    }


@settings(max_examples=150)
@given(
    data=st.data(),
    lengths=st.lists(
        st.tuples(st.sampled_from([0, 1, 3, 17, 40]), st.sampled_from([0, 1, 5, 40, 600])), max_size=4
    ),
    group=st.integers(1, 3),
    dim=st.sampled_from([8, 64]),
)
def test_variable_length_batches(data, lengths, group, dim):
    """Every sequence as alone."""
    queries, keys = ([pair[side] for pair in lengths] for side in (0, 1))
    q = normal(2 * group, sum(queries), dim)
    k, v = normal(2, sum(keys), dim, seed=1), normal(2, sum(keys), 8, seed=2)
    options = drawn_options(data, 2 * group)
    offsets = data.draw(
        st.none() | st.lists(st.integers(-3, 9), min_size=len(lengths), max_size=len(lengths))
    )
    mask = data.draw(st.sampled_from([None, normal(1, sum(queries), max(keys, default=0), seed=6) > -1]))
    starts = {"query_starts": starts_of(queries), "key_starts": starts_of(keys)}
    together = {**options, **starts, "causal_offset": 0 if offsets is None else offsets}
    got, lse = SDPA(q, k, v, mask, return_lse=True, **together)
    np.testing.assert_array_equal(SDPA(q[None], k[None], v[None], mask, **together)[0], got)
    if mask is not None:
        np.testing.assert_array_equal(SDPA(q, k, v, mask_bits=packed(mask), **together), got)
    for s, (count, own) in enumerate(lengths):
        rows = slice(starts["query_starts"][s], starts["query_starts"][s] + count)
        columns = slice(starts["key_starts"][s], starts["key_starts"][s] + own)
        alone, alone_lse = SDPA(
            q[:, rows],
            k[:, columns],
            v[:, columns],
            None if mask is None else mask[:, rows, :own],
            causal_offset=offsets[s] if offsets else 0,
            return_lse=True,
            **options,
        )
        np.testing.assert_array_equal(got[:, rows], alone)
        np.testing.assert_array_equal(lse[:, rows], alone_lse)


def test_rows_of_no_sequence_are_left_alone():
    x, out = normal(2, 9, 8), np.full((2, 9, 8), 7, np.float32)
    assert SDPA(x, x, x, query_starts=[2, 4, 8], key_starts=[0, 0, 9], out=out) is out
    assert (out[:, [0, 1, 8]] == 7).all()
    assert (out[:, 2:4] == 0).all()  # no keys
    np.testing.assert_array_equal(out[:, 4:8], SDPA(x[:, 4:8], x, x))


@pytest.mark.parametrize("starts", [([0], [0]), ([0, 0], [0, 4]), ([2, 2, 2], [1, 1, 1]), ([0, 0], [4, 4])])
def test_variable_length_without_queries(starts):
    x, out = normal(2, 4, 8), np.full((2, 4, 8), 7, np.float32)
    given_starts = dict(zip(("query_starts", "key_starts"), starts))
    SDPA(x, x, x, out=out, **given_starts)
    assert (out == 7).all()
    headlane.plan_attention(x, x, x, **given_starts)


@pytest.mark.parametrize("options", [{"is_causal": True}, {"window": (2, 1)}, {"alibi_slopes": normal(3)}])
def test_offsets(options):
    q, k = normal(4, 3, 6, 8), normal(4, 3, 11, 8, seed=1)
    offsets = np.array([0, 5, -2, 11])
    got = SDPA(q, k, k, causal_offset=offsets, **options)
    for b, offset in enumerate(offsets):
        np.testing.assert_array_equal(got[b], SDPA(q[b], k[b], k[b], causal_offset=offset, **options))
    for form in (list, tuple, np.int8):
        given_offsets = offsets.astype(form) if form is np.int8 else form(offsets.tolist())
        np.testing.assert_array_equal(SDPA(q, k, k, causal_offset=given_offsets, **options), got)


@pytest.mark.parametrize("bidirectional", [True, False])
def test_relative_bias_is_a_bias(bidirectional):
    """The same as a mask, which has a value for each score."""
    q, k, table = normal(3, 40, 8), normal(3, 530, 8, seed=1), normal(3, 16, seed=2)
    distance = np.arange(530) - np.arange(40)[:, None] - 300
    bucket = np.vectorize(lambda d: headlane.t5_bucket(int(d), 16, 50, bidirectional))
    got = SDPA(
        q,
        k,
        k,
        relative_bias=table,
        relative_max_distance=50,
        relative_bidirectional=bidirectional,
        causal_offset=300,
    )
    np.testing.assert_array_equal(got, SDPA(q, k, k, table[:, bucket(distance)]))


T5 = [
    (32, 128, True),
    (32, 128, False),
    (16, 64, True),
    (8, 20, False),
    (64, 1000, True),
    (12, 100, True),
    (2, 8, False),
]


@pytest.mark.parametrize(("buckets", "max_distance", "bidirectional"), T5)
def test_t5_bucket(buckets, max_distance, bidirectional):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5", reason="transformers is not installed")
    distances = torch.arange(-1000, 1001)
    theirs = t5.T5Attention._relative_position_bucket(
        distances, bidirectional, buckets, max_distance
    ).tolist()
    ours = [headlane.t5_bucket(d, buckets, max_distance, bidirectional) for d in distances.tolist()]
    differences = {d: (a, b) for d, a, b in zip(distances.tolist(), ours, theirs) if a != b}
    assert not differences
