"""Attention on bfloat16 and float16: caches, layers with memory, partial results, PyTorch's operator,
models of transformers.
"""

import calls
import headlane
import numpy as np
import pytest
from half import HALVES, assert_rounded_once, check, wide

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("kind", HALVES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int8"])
def test_cache(kind, dtype):
    """Keys and values of any type: what is stored is what the widened ones would leave."""
    x = HALVES[kind](RNG.standard_normal((2, 3, 40, 16), np.float32))
    caches = [headlane.KvCache(3, 16, page_size=32, dtype=dtype) for _ in range(2)]
    for cache, tokens in zip(caches, (x, wide(x))):
        numbers = [cache.add(), cache.add()]
        cache.append(numbers, tokens[:, :, :30], tokens[:, :, :30])
        for number in numbers:
            cache.append(number, tokens[number, :, 30:], tokens[number, :, 30:])
    for number in (0, 1):
        (k, v), (wide_k, _) = (cache.read(number) for cache in caches)
        assert (k.dtype, k.shape) == (np.float32, (3, 40, 16))
        np.testing.assert_array_equal(k, wide_k)
        np.testing.assert_array_equal(v, wide_k)
        if dtype in kind or dtype == "float32":
            np.testing.assert_array_equal(k, wide(x)[number])
    check(
        headlane.attention_over_cache(x, caches[0], [0, 1], return_lse=True),
        headlane.attention_over_cache(wide(x), caches[1], [0, 1], return_lse=True),
        kind,
    )


@pytest.mark.parametrize("kind", HALVES)
def test_memory_of_a_layer(kind):
    x = HALVES[kind](calls.X)
    caches = calls.two_heads(), calls.two_heads()
    for layer in (calls.attention(), headlane.DecoderLayer(calls.LAYER, num_heads=2)):
        for cache, memory in zip(caches, (x, wide(x))):
            layer.remember(memory, cache, [0, 1])
    for number in (0, 1):
        for ours, theirs in zip(*(cache.read(number) for cache in caches)):
            np.testing.assert_array_equal(ours, theirs)
    assert caches[0].length(0) == 8
    result, exact = (
        calls.attention()(y, cache=cache, sequences=[0, 1]) for y, cache in zip((x, wide(x)), caches)
    )
    assert_rounded_once(result, exact, kind)


@pytest.mark.parametrize("kind", HALVES)
def test_batches_of_more_than_one_axis(kind):
    """Several calls of the library for one of Python; a mask that is broadcast along all of them."""
    q, k, v = (HALVES[kind](RNG.standard_normal((2, 3, 2, n, 8), np.float32)) for n in (4, 6, 6))
    mask = HALVES[kind](RNG.standard_normal((4, 6), np.float32))
    check(
        headlane.scaled_dot_product_attention(q, k, v, mask, return_sum=True),
        headlane.scaled_dot_product_attention(*map(wide, (q, k, v, mask)), return_sum=True),
        kind,
    )


@pytest.mark.parametrize("kind", HALVES)
def test_out_beside_the_query(kind):
    """In one buffer with it, as a block of columns, and at any element."""
    q, k = (HALVES[kind](RNG.standard_normal((2, 3, 2, n, 8), np.float32)) for n in (4, 6))
    expected = headlane.scaled_dot_product_attention(q, k, k)
    buffer = HALVES[kind](np.zeros(2 * 384 + 1, np.float32))
    columns = HALVES[kind](np.zeros((2, 3, 2, 4, 16), np.float32))
    for out, query in (
        (buffer[:384].reshape(q.shape), buffer[384:768].reshape(q.shape)),
        (buffer[1:385].reshape(q.shape), q),
        (columns[..., 8:], columns[..., :8]),
    ):
        query[...] = q
        headlane.scaled_dot_product_attention(query, k, k, out=out)
        assert (out == expected).all()


@pytest.mark.parametrize("kind", HALVES)
def test_parts_of_float32(kind):
    """Parts whose out is float32 merge to the result of all keys, rounded once."""
    q, k, v = (HALVES[kind](RNG.standard_normal((2, n, 8), np.float32)) for n in (5, 600, 600))
    parts = []
    for keys in (slice(0, 512), slice(512, 600)):
        out = np.empty((2, 5, 8), np.float32)
        _, *sums = headlane.scaled_dot_product_attention(q, k[:, keys], v[:, keys], return_sum=True, out=out)
        parts.append((out, *map(wide, sums)))
    out = HALVES[kind](np.zeros((2, 5, 8), np.float32))
    headlane.merge(parts, out=out)
    exact = headlane.scaled_dot_product_attention(*map(wide, (q, k, v)))
    assert_rounded_once(out, exact, kind)


@pytest.mark.parametrize("kind", HALVES)
def test_plan(kind):
    """A plan is that of the same call on float32."""
    q, k = (RNG.standard_normal((2, n, 8), np.float32) for n in (5, 600))
    plan = headlane.plan_attention(q, k, k, is_causal=True)
    assert headlane.plan_attention(*map(HALVES[kind], (q, k, k)), is_causal=True) == plan


def test_plan_copies_nothing():
    """Windows of one buffer, of which a copy in float32 would have 512 GiB."""
    heads, keys, dim = 2**12, 2**18, 128
    buffer = np.zeros(heads + keys + dim, np.float16)
    windows = np.lib.stride_tricks.as_strided(buffer, (heads, keys, dim), (2, 2, 2))
    assert headlane.plan_attention(windows[:, :1], windows, windows).tasks > 0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_operator(dtype):
    """PyTorch's operator, alone and compiled; its registrations know the type of the result."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    import headlane.torch_ops

    operator = torch.ops.headlane.scaled_dot_product_attention
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(2, 4, n, 8, generator=generator).to(getattr(torch, dtype)) for n in (5, 9))
    mask = torch.randn(5, 9, generator=generator).to(torch.float16)
    exact = headlane.scaled_dot_product_attention(q.float(), k.float(), k.float(), mask.float())
    assert_rounded_once(operator(q, k, k, mask), exact.numpy(), f"torch.{dtype}")
    compiled = torch.compile(lambda *a: operator(*a), fullgraph=True, backend="aot_eager")
    assert_rounded_once(compiled(q, k, k, mask), exact.numpy(), f"torch.{dtype}")
    fake = operator(*(x.to("meta") for x in (q, k, k, mask)))
    assert (fake.dtype, fake.shape) == (q.dtype, q.shape)
    torch.library.opcheck(operator, (q, k, k, mask), test_utils=("test_schema", "test_faketensor"))
    with pytest.raises(RuntimeError, match="no autograd formula"):
        operator(q.requires_grad_(), k, k).sum().backward()
    with pytest.raises(RuntimeError, match="query requires a gradient"):
        headlane.scaled_dot_product_attention(q, k, k)
