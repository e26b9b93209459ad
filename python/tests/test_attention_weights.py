"""attention_weights, attention_key_sums and plan_attention."""

import headlane
import numpy as np
import pytest
import reference
from test_attention_options import OPTIONS

SDPA = headlane.scaled_dot_product_attention
HEADS, ROWS, KEYS = 4, 9, 13  # of OPTIONS


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@pytest.mark.parametrize("name", [None, *OPTIONS])
def test_against_float64(name):
    options = OPTIONS.get(name, {})
    query, key = normal(3, HEADS, ROWS, 16), normal(3, HEADS, KEYS, 16, seed=1)
    mask = normal(3, 1, ROWS, KEYS, seed=3) > -1
    # Attention to values that are 1 at one key each returns the weights, so its bound applies.
    exact, bound, _, _ = reference.attention(query, key, np.eye(KEYS, dtype=np.float32), mask, **options)
    got, lse = headlane.attention_weights(query, key, mask, return_lse=True, **options)
    reference.check(got, exact, bound)
    np.testing.assert_array_equal(lse, SDPA(query, key, key, mask, return_lse=True, **options)[1])
    sums = headlane.attention_key_sums(query, key, mask, **options)
    assert sums.shape == (3, HEADS, KEYS)
    reference.check(sums, exact.sum(-2), bound.sum(-2) + ROWS * reference.U * exact.sum(-2))
    one_by_one = np.zeros_like(sums)
    for i in range(ROWS):
        one_by_one += got[..., i, :]
    np.testing.assert_array_equal(sums, one_by_one)


def test_some_rows_have_the_bits_of_all():
    query, key = normal(3, 40, 16), normal(3, 600, 16, seed=1)
    whole = headlane.attention_weights(query, key, is_causal=True, causal_offset=500)
    some = headlane.attention_weights(query[1:, 7:12], key[1:], is_causal=True, causal_offset=507)
    np.testing.assert_array_equal(some, whole[1:, 7:12])


def test_axes_heads_and_out():
    query, key = normal(2, 1, 4, 9, 8), normal(3, 2, 13, 8, seed=1)
    every_head = np.repeat(key, 2, axis=1)
    expected = headlane.attention_weights(query, every_head)
    assert expected.shape == (2, 3, 4, 9, 13)
    np.testing.assert_array_equal(headlane.attention_weights(query, key, enable_gqa=True), expected)
    np.testing.assert_array_equal(
        headlane.attention_weights(query[1, 0, 2], every_head[0, 2]), expected[1, 0, 2]
    )
    out = np.full((2, 3, 4, 9, 20), np.nan, np.float32)[..., :13]
    assert headlane.attention_weights(query, every_head, out=out) is out
    np.testing.assert_array_equal(out, expected)
    sums = headlane.attention_key_sums(query, key, enable_gqa=True)
    np.testing.assert_array_equal(
        headlane.attention_key_sums(query[1, 0, 2], every_head[0, 2]), sums[1, 0, 2]
    )
    assert headlane.attention_key_sums(query, every_head, out=out[..., 0, :]).base is not None
    np.testing.assert_array_equal(out[..., 0, :], sums)


def test_torch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x = normal(2, 9, 8)
    for function in (headlane.attention_weights, headlane.attention_key_sums):
        got = function(torch.from_numpy(x), torch.from_numpy(x), is_causal=True)
        assert type(got) is torch.Tensor
        np.testing.assert_array_equal(got.numpy(), function(x, x, is_causal=True))


def test_plan():
    q, k, v = normal(2, 4, 100, 64), normal(2, 4, 2000, 64), normal(2, 4, 2000, 32)
    plan = headlane.plan_attention(q, k, v, is_causal=True, causal_offset=1900, num_threads=2)
    assert type(plan) is headlane.AttentionPlan
    assert plan.isa == headlane.isa()
    assert plan.key_block == 512
    assert plan.tasks >= plan.threads == 2
    assert 0 < plan.workspace_bytes < 100e6
    assert headlane.plan_attention(q, k, v, num_threads=1).threads == 1
    cache = headlane.KvCache(4, 64, 32)
    sequence = cache.add()
    cache.append(sequence, k[0], v[0])
    cached = headlane.plan_attention(q[:1], cache, [sequence], is_causal=True)
    assert not cached.packs_keys
    assert headlane.plan_attention(q[0], cache, sequence, is_causal=True) == cached


X, X4 = normal(4, 8), normal(2, 6, 4, 8)
CASES = {
    "option": (
        lambda: headlane.attention_weights(X, X, causal=True),
        TypeError,
        "attention_weights: there is no option 'causal'",
    ),
    "sums, option": (
        lambda: headlane.attention_key_sums(X, X, lse=1),
        TypeError,
        "attention_key_sums: .*'lse'",
    ),
    "plan, option": (lambda: headlane.plan_attention(X, X, X, x=1), TypeError, "plan_attention: .*'x'"),
    "variable-length": (
        lambda: headlane.attention_weights(X, X, query_starts=[0, 4], key_starts=[0, 4]),
        ValueError,
        "attention_weights: .*variable length",
    ),
    "head_dim": (lambda: headlane.attention_weights(X, X[:, :7]), ValueError, "query has 8 .*key has 7"),
    "heads": (
        lambda: headlane.attention_weights(X4, X4[:, :3]),
        ValueError,
        "query has 6 heads, key 3; .*enable_gqa",
    ),
    "mask": (
        lambda: headlane.attention_key_sums(X, X, np.ones((3, 4), bool)),
        ValueError,
        r"attn_mask of shape \[3, 4\]",
    ),
    "out": (
        lambda: headlane.attention_weights(X, X, out=np.zeros((4, 8), np.float32)[:, ::2]),
        ValueError,
        "weights has 2 as its last stride",
    ),
    "out shape": (
        lambda: headlane.attention_key_sums(X, X, out=np.zeros(3, np.float32)),
        ValueError,
        r"out has shape \[3\], the result \[4\]",
    ),
    "plan, values": (
        lambda: headlane.plan_attention(X, X, X[:3]),
        ValueError,
        "key has 4 keys, value has 3 values",
    ),
    "plan, None": (lambda: headlane.plan_attention(X, None, X), TypeError, "key has type NoneType"),
    "bucket": (lambda: headlane.t5_bucket(1, 3), ValueError, "t5_bucket: 3 buckets"),
    "bucket, distance": (
        lambda: headlane.t5_bucket(1, 32, 8),
        ValueError,
        "max_distance is 8, but 8 distances",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_errors(name):
    call, error, message = CASES[name]
    with pytest.raises(error, match=message):
        call()
