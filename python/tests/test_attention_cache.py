"""attention_over_cache: the bits of attention over the same keys and values in plain arrays."""

from concurrent.futures import ThreadPoolExecutor

import headlane
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

SDPA = headlane.scaled_dot_product_attention
OVER = headlane.attention_over_cache


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def filled(lengths, kv_heads=2, dim=16, value_dim=8, **options):
    """A cache, its sequences, and the keys and values of each of them."""
    cache = headlane.KvCache(kv_heads, dim, value_dim, **options)
    pairs = [(normal(kv_heads, n, dim, seed=n), normal(kv_heads, n, value_dim, seed=n + 1)) for n in lengths]
    sequences = [cache.add() for _ in pairs]
    for sequence, (k, v) in zip(sequences, pairs):
        half = k.shape[1] // 2  # in two steps
        for tokens in (slice(half), slice(half, None)):
            cache.append(sequence, k[:, tokens], v[:, tokens])
    return cache, sequences, pairs


@settings(max_examples=100)
@given(
    data=st.data(),
    lengths=st.lists(st.sampled_from([0, 1, 5, 40, 130, 700]), max_size=3),
    rows=st.sampled_from([0, 1, 3, 30]),
    group=st.integers(1, 3),
    page_size=st.sampled_from([32, 128, 512]),
)
def test_the_bits_of_plain_arrays(data, lengths, rows, group, page_size):
    cache, sequences, pairs = filled(lengths, page_size=page_size)
    heads, longest = 2 * group, max(lengths, default=0)
    q = normal(len(lengths), heads, rows, 16, seed=9)
    options = {
        "is_causal": data.draw(st.booleans()),
        "window": data.draw(st.sampled_from([None, (20, None)])),
        "softcap": data.draw(st.sampled_from([0, 5.0])),
        "alibi_slopes": data.draw(st.sampled_from([None, normal(heads, seed=3)])),
        "sinks": data.draw(st.sampled_from([None, normal(heads, seed=4)])),
        "relative_bias": data.draw(st.sampled_from([None, normal(heads, 32, seed=5)])),
    }
    offset = data.draw(st.integers(-3, 3))
    mask = data.draw(st.sampled_from([None, normal(rows, longest, seed=6) > -1]))
    got, lse = OVER(q, cache, sequences, mask, causal_offset=offset, return_lse=True, **options)
    each = OVER(q, cache, np.array(sequences), mask, causal_offset=[offset] * len(lengths), **options)
    np.testing.assert_array_equal(each, got)
    for s, (k, v) in enumerate(pairs):
        alone, alone_lse = SDPA(
            q[s],
            k,
            v,
            None if mask is None else mask[:, : lengths[s]],
            enable_gqa=True,
            causal_offset=lengths[s] - rows + offset,
            return_lse=True,
            **options,
        )
        np.testing.assert_array_equal(got[s], alone)
        np.testing.assert_array_equal(lse[s], alone_lse)
        own = None if mask is None else mask[:, : lengths[s]]
        one = OVER(q[s], cache, sequences[s], own, causal_offset=offset, **options)
        np.testing.assert_array_equal(one, alone)


def test_decoding():
    """Decoding a token at a time returns the rows of the whole."""
    q, k, v = normal(4, 70, 16), normal(2, 70, 16, seed=1), normal(2, 70, 8, seed=2)
    whole = SDPA(q, k, v, is_causal=True, enable_gqa=True)
    cache = headlane.KvCache(2, 16, 8, page_size=32)
    sequence = cache.add()
    for first, end in ((0, 31), *((i, i + 1) for i in range(31, 70))):
        cache.append(sequence, k[:, first:end], v[:, first:end])
        got = OVER(q[:, first:end], cache, sequence, is_causal=True)
        np.testing.assert_array_equal(got, whole[:, first:end])
    fork = cache.fork(sequence, 40)
    np.testing.assert_array_equal(OVER(q[:, 30:40], cache, fork, is_causal=True), whole[:, 30:40])
    np.testing.assert_array_equal(
        OVER(q[None, :, 30:40], cache, [sequence], key_lengths=[40], is_causal=True)[0], whole[:, 30:40]
    )


def test_parts():
    """A shared prefix is attended to once."""
    cache, (prefix, rest), pairs = filled([512, 70])
    q = normal(4, 3, 16, seed=5)
    k, v = (np.concatenate([pair[side] for pair in pairs], axis=1) for side in (0, 1))
    parts = [OVER(q, cache, prefix, return_sum=True), OVER(q, cache, rest, is_causal=True, return_sum=True)]
    expected = SDPA(q, k, v, is_causal=True, causal_offset=579, enable_gqa=True)
    np.testing.assert_array_equal(headlane.merge(parts), expected)


def test_torch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    cache, sequences, _ = filled([5, 9])
    q, out = normal(2, 2, 3, 16), torch.full((2, 3, 2, 8), torch.nan).transpose(1, 2)
    assert OVER(torch.from_numpy(q), cache, torch.tensor(sequences), out=out) is out
    np.testing.assert_array_equal(out.numpy(), OVER(q, cache, tuple(sequences)))


def test_threads():
    cache, sequences, _ = filled([700] * 8)
    q = normal(1, 4, 5, 16)
    expected = [OVER(q, cache, [s]) for s in sequences]

    def work(i):
        mine = cache.add()
        cache.append(mine, normal(2, 7, 16), normal(2, 7, 8))
        got = OVER(q, cache, [sequences[i % 8]])
        cache.remove(mine)
        return got

    with ThreadPoolExecutor(4) as pool:
        for i, got in enumerate(pool.map(work, range(64))):
            np.testing.assert_array_equal(got, expected[i % 8])


CACHE, SEQUENCES, _ = filled([5, 9])
Q = normal(2, 4, 3, 16)
CASES = {
    "no cache": (
        lambda: OVER(Q, Q, [0]),
        TypeError,
        "attention_over_cache: cache has type ndarray; wanted: KvCache",
    ),
    "None": (lambda: OVER(None, CACHE, [0]), TypeError, "query has type NoneType"),
    "option": (lambda: OVER(Q, CACHE, [0, 1], offset=3), TypeError, "there is no option 'offset'"),
    "sequence": (
        lambda: OVER(Q, CACHE, [0, 7]),
        ValueError,
        r"sequences\[1\] is 7, which the cache does not have",
    ),
    "negative": (lambda: OVER(Q[0], CACHE, -1), ValueError, r"sequences\[0\] is -1"),
    "float": (lambda: OVER(Q[0], CACHE, [0.0, 1.0]), TypeError, r"sequences\[0\] is 0.0; wanted: an integer"),
    "number": (lambda: OVER(Q, CACHE, [0]), ValueError, "query has 2 batch elements, cache has 1"),
    "heads": (lambda: OVER(Q[:, :3], CACHE, [0, 1]), ValueError, "query has 3 heads, cache has 2"),
    "head_dim": (lambda: OVER(Q[..., :8], CACHE, [0, 1]), ValueError, "query has 8 .*cache has 16"),
    "5 axes": (lambda: OVER(Q[None], CACHE, [0, 1]), ValueError, r"query has shape \[1, 2, 4, 3, 16\]"),
    "mask": (
        lambda: OVER(Q, CACHE, [0, 1], np.ones((3, 5), bool)),
        ValueError,
        r"attn_mask of shape \[3, 5\]",
    ),
    "variable-length": (
        lambda: OVER(Q, CACHE, [0, 1], query_starts=[0, 3], key_starts=[0, 3]),
        ValueError,
        "query_starts is given with a cache",
    ),
    "lengths": (
        lambda: OVER(Q, CACHE, [0, 1], key_lengths=[6, 10]),
        ValueError,
        r"key_lengths\[1\] is 10, cache has 9",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_errors(name):
    call, error, message = CASES[name]
    with pytest.raises(error, match=message):
        call()
