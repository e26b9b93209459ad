"""KvCache: sequences, sharing, errors that change nothing.
tests/attention/test_kv_cache.cpp tests its contents.
"""

import sys

import headlane
import layouts
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

RNG = np.random.default_rng(0)


def tokens(*shape):
    return RNG.standard_normal(shape, np.float32)


def test_sequences():
    cache = headlane.KvCache(2, 8, 5, page_size=32)
    a, b = cache.add(), cache.add()
    cache.append(a, tokens(2, 40, 8), tokens(2, 40, 5))
    cache.append([b, a], tokens(2, 2, 3, 8), tokens(2, 2, 3, 5))
    assert (cache.length(a), cache.length(b), cache.pages_in_use) == (43, 3, 3)
    c, d = cache.fork(a), cache.fork(a, 32)
    assert (cache.length(c), cache.length(d), cache.fork(a, length=0)) == (43, 32, 4)
    assert cache.pages_in_use == 3
    cache.append(np.array([c, d]), tokens(2, 2, 1, 8), tokens(2, 2, 1, 5))
    assert cache.pages_in_use == 5
    cache.append(np.int64(c), tokens(2, 0, 8), tokens(2, 0, 5))
    cache.append([], tokens(0, 2, 1, 8), tokens(0, 2, 1, 5))
    cache.truncate(a, 7)
    cache.remove(c)
    assert (cache.length(a), cache.pages_in_use) == (7, 3)
    assert cache.add() == c
    assert cache.page_nbytes == 4 * 2 * 32 * (8 + 32)
    assert cache.nbytes == 5 * cache.page_nbytes


def test_properties():
    cache = headlane.KvCache(3, 64)
    assert (cache.kv_heads, cache.head_dim, cache.value_dim, cache.page_size) == (3, 64, 64, 128)
    assert (cache.pages_in_use, cache.nbytes, cache.dtype) == (0, 0, "float32")
    expected = (
        "KvCache(kv_heads=3, head_dim=64, value_dim=64, page_size=128, dtype='float32', pages_in_use=0)"
    )
    assert repr(cache) == expected
    assert headlane.KvCache.__module__ == "headlane"


@given(data=st.data())
def test_any_strides(data):
    count = data.draw(st.sampled_from([0, 1, 17, 40]))
    k, v = data.draw(layouts.arrays((2, count, 8))), data.draw(layouts.arrays((2, count, 5)))
    cache = headlane.KvCache(2, 8, 5, page_size=32)
    cache.append(cache.add(), k, v)
    assert cache.length(0) == count


def test_max_pages():
    cache = headlane.KvCache(1, 4, page_size=32, max_pages=2)
    a = cache.add()
    cache.append(a, tokens(1, 33, 4), tokens(1, 33, 4))
    with pytest.raises(
        ValueError, match=r"^KvCache\.append: 2 pages are in use and 1 more .* max_pages is 2"
    ):
        cache.append(a, tokens(1, 32, 4), tokens(1, 32, 4))
    assert (cache.length(a), cache.pages_in_use) == (33, 2)


K, V = tokens(2, 3, 8), tokens(2, 3, 5)
# name: (call with cache, exception, pattern of the message); sequence 0 has 3 keys, 1 was removed,
# 2 has none
CASES = {
    "head_dim": (lambda c: headlane.KvCache(1, 513), ValueError, "^KvCache: head_dim is 513"),
    "value_dim": (lambda c: headlane.KvCache(1, 8, 0), ValueError, "^KvCache: value_dim is 0"),
    "page_size": (lambda c: headlane.KvCache(1, 8, page_size=33), ValueError, "^KvCache: page_size is 33"),
    "max_pages": (lambda c: headlane.KvCache(1, 8, max_pages=-1), ValueError, "^KvCache: max_pages is -1"),
    "dtype": (
        lambda c: headlane.KvCache(1, 8, dtype="int4_group32"),
        ValueError,
        "^KvCache: dtype is 'int4_group32'; there are float32, bfloat16, float16 and int8$",
    ),
    "dtype, class": (
        lambda c: headlane.KvCache(1, 8, dtype=np.int8),
        TypeError,
        "^KvCache: dtype is .*wanted: a str",
    ),
    "removed": (lambda c: c.append(1, K, V), ValueError, r"^KvCache\.append: sequence 1 "),
    "negative": (lambda c: c.append([-1], K[None], V[None]), ValueError, r"^KvCache\.append: sequence -1 "),
    "huge": (
        lambda c: c.append(2**70, K, V),
        ValueError,
        r"sequence is 1180591620717411303424, which has more than 64 bits",
    ),
    "float": (lambda c: c.append(0.0, K, V), TypeError, None),
    "float in list": (lambda c: c.append([0.0], K[None], V[None]), TypeError, None),
    "None": (lambda c: c.append(0, None, V), TypeError, r"k has type NoneType"),
    "float64": (lambda c: c.append(0, K, V.astype(np.float64)), TypeError, r"v .*float64"),
    "rank": (
        lambda c: c.append(0, K[0], V),
        ValueError,
        r"KvCache\.append: k has shape \[3, 8\]; wanted: \[kv_h",
    ),
    "rank, list": (
        lambda c: c.append([0], K, V),
        ValueError,
        r"k has shape \[2, 3, 8\]; wanted: \[sequences",
    ),
    "heads": (lambda c: c.append(0, K[:1], V), ValueError, r"k has 1 heads, kv_heads is 2"),
    "columns": (lambda c: c.append(0, K, K), ValueError, r"v has 8 columns, value_dim is 5"),
    "tokens": (lambda c: c.append(0, K[:, :2], V), ValueError, r"k has 2 tokens, v has 3 tokens"),
    "sequences": (
        lambda c: c.append([0, 2], K[None], V[None]),
        ValueError,
        r"k has 1 sequences, sequences has 2",
    ),
    "twice": (
        lambda c: c.append([2, 2], np.stack([K, K]), np.stack([V, V])),
        ValueError,
        r"^KvCache\.append: sequence 2 is named twice",
    ),
    "fork": (lambda c: c.fork(1), ValueError, r"^KvCache\.fork: sequence 1 "),
    "fork, long": (lambda c: c.fork(0, 4), ValueError, r"^KvCache\.fork: length is 4, sequence 0 has 3"),
    "fork, -1": (lambda c: c.fork(0, -1), ValueError, r"^KvCache\.fork: length is -1"),
    "truncate": (
        lambda c: c.truncate(0, 4),
        ValueError,
        r"^KvCache\.truncate: length is 4, sequence 0 has 3",
    ),
    "remove": (lambda c: c.remove(1), ValueError, r"^KvCache\.remove: sequence 1 "),
    "length": (lambda c: c.length(9), ValueError, r"^KvCache\.length: sequence 9 "),
}


@pytest.mark.parametrize("name", CASES)
def test_errors(name):
    call, error, message = CASES[name]
    cache = headlane.KvCache(2, 8, 5)
    for _ in range(3):
        cache.add()
    cache.append(0, K, V)
    cache.remove(1)
    references = sys.getrefcount(K)
    with pytest.raises(error, match=message):
        call(cache)
    assert (cache.length(0), cache.length(2), cache.pages_in_use) == (3, 0, 1)
    assert sys.getrefcount(K) == references


def half_bits(x):
    """float32 rounded to bfloat16, to nearest, ties to even."""
    word = x.view(np.uint32).astype(np.uint64)
    return ((word + 0x7FFF + (word >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)


def int8(x):
    """Each row as q * scale."""
    word = (np.abs(x).max(-1, keepdims=True) / np.float32(127)).view(np.uint32)
    scale = (word + 0x7F + (word >> 8 & 1) & 0xFFFFFF00).astype(np.uint32).view(np.float32)
    return np.rint(x / scale) * scale


ROUNDED = {
    "float32": lambda x: x,
    "bfloat16": half_bits,
    "float16": lambda x: x.astype(np.float16).astype(np.float32),
    "int8": int8,
}


@pytest.mark.parametrize("dtype", ROUNDED)
def test_types(dtype):
    k, v, q = tokens(2, 3, 50, 8), tokens(2, 3, 50, 5), tokens(2, 6, 4, 8)
    cache, plain = headlane.KvCache(3, 8, 5, dtype=dtype), headlane.KvCache(3, 8, 5)
    assert cache.dtype == dtype
    for other, *kv in ((cache, k, v), (plain, ROUNDED[dtype](k), ROUNDED[dtype](v))):
        other.append([other.add(), other.add()], *kv)
    for queries in (q, q[:, :, :1]):
        y, expected = (headlane.attention_over_cache(queries, one, [1, 0]) for one in (cache, plain))
        assert y.tobytes() == expected.tobytes()
    size = {"float32": 4, "int8": 1}.get(dtype, 2)
    assert cache.page_nbytes == 3 * 128 * (size * (8 + 32) + (8 if dtype == "int8" else 0))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_int8_refuses_what_is_not_finite(bad):
    cache = headlane.KvCache(2, 8, 5, dtype="int8")
    a, b = cache.add(), cache.add()
    k, v = tokens(2, 2, 3, 8), tokens(2, 2, 3, 5)
    v[1, 0, 2, 4] = bad
    with pytest.raises(ValueError, match=r"^KvCache\.append: v\[1, 0, 2, 4\] is not finite"):
        cache.append([a, b], k, v)
    with pytest.raises(ValueError, match=r"^KvCache\.append: v\[0, 2, 4\] is not finite"):
        cache.append(a, k[1], v[1])
    assert (cache.length(a), cache.length(b), cache.nbytes) == (0, 0, 0)


def test_torch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    cache = headlane.KvCache(2, 8, 5)
    a = cache.add()
    cache.append(torch.tensor([a]), torch.ones(1, 3, 2, 8).transpose(1, 2), torch.ones(1, 2, 3, 5))
    assert cache.length(a) == 3
    for number in torch.tensor([a]):  # tensors without axes
        cache.append(number, torch.ones(2, 4, 8), torch.ones(2, 4, 5))
        assert headlane.attention_over_cache(torch.ones(2, 1, 8), cache, number).shape == (2, 1, 5)
    assert cache.length(a) == 7


def test_numbers_without_axes():
    """An array without axes is an integer, not a sequence of some."""
    cache = headlane.KvCache(2, 8)
    number = np.array(cache.add())
    cache.append(number, tokens(2, 3, 8), tokens(2, 3, 8))
    assert cache.length(number) == 3
    assert headlane.attention_over_cache(tokens(2, 1, 8), cache, number).shape == (2, 1, 8)
