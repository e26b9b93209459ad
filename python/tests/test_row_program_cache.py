"""_core.RowProgram: attention to the keys of a cache."""

import headlane
import pytest
from headlane import _core

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from row_programs import TYPES, WIDTH, linear, packed, random, run  # noqa: E402

# Of one product: columns that none reads, queries, values, keys.
HEADS, KV_HEADS, DIM, VALUE_DIM = 4, 2, 8, 3
COLUMNS = (2, 2 + HEADS * DIM + KV_HEADS * VALUE_DIM, 2 + HEADS * DIM)
ALL = COLUMNS[1] + KV_HEADS * DIM
SIZES = (COLUMNS, HEADS, KV_HEADS, DIM, VALUE_DIM)
MATRICES = [packed(WIDTH, ALL, 1), packed(HEADS * VALUE_DIM, WIDTH, 2)]


def program():
    made = _core.RowProgram(1)
    product = made.linear(0, MATRICES[0], -1, None, -1, "float32")
    mixed = made.attention_with_cache(product, product, product, *SIZES)
    made.add_output(made.linear(mixed, MATRICES[1], -1, None, 0, "float32"))
    return made


def memory(batch, positions, dtype=torch.float32):
    return (
        random(batch, KV_HEADS, positions, DIM, seed=1, dtype=dtype),
        random(batch, KV_HEADS, positions, VALUE_DIM, seed=2, dtype=dtype),
    )


def heads_of(product, which, heads, dim):
    return product[..., COLUMNS[which] :][..., : heads * dim].unflatten(-1, (heads, dim)).transpose(1, 2)


def one_by_one(x, keys, values, options):
    """By the functions of the package, with keys and values of the cache alone; those of the whole, too."""
    mask, causal, scale, others = options
    product = linear(x, MATRICES[0])
    queries = heads_of(product, 0, HEADS, DIM)
    keys = torch.cat((keys, heads_of(product, 1, KV_HEADS, DIM)), 2)
    values = torch.cat((values, heads_of(product, 2, KV_HEADS, VALUE_DIM)), 2)
    mixed = headlane.scaled_dot_product_attention(
        queries, keys, values, mask, 0.0, causal, scale, enable_gqa=True, **others
    )
    return linear(mixed.transpose(1, 2).flatten(2), MATRICES[1], residual=x), keys, values


OPTIONS = {
    "no mask": lambda batch, length, keys: (None, False, None, {}),
    "causal": lambda batch, length, keys: (None, True, 0.25, {"causal_offset": keys - length}),
    "mask": lambda batch, length, keys: (random(batch, 1, length, keys, seed=3) < 1, False, None, {}),
    "bias": lambda batch, length, keys: (random(batch, HEADS, length, keys, seed=4), False, None, {}),
}


# More sequences and more rows than a group has.
@pytest.mark.parametrize(("batch", "length"), [(1, 1), (3, 1), (2, 5), (900, 1), (2, 450), (0, 1), (2, 0)])
@pytest.mark.parametrize("used", [0, 1, 40])
@pytest.mark.parametrize("name", OPTIONS)
def test_attention_with_cache(batch, length, used, name):
    x, options = random(batch, length, WIDTH, seed=5), OPTIONS[name](batch, length, used + length)
    for threads in (1, 2):
        keys, values = memory(batch, used + length + 3)
        before = keys.clone(), values.clone()
        made, *filled = one_by_one(x, keys[:, :, :used], values[:, :, :used], options)
        (result,) = run(program(), [x], (), [(*options, (keys, values, used))], threads)
        assert result.equal(made)
        for there, wanted, was in zip((keys, values), filled, before):
            assert there[:, :, : used + length].equal(wanted)
            assert there[:, :, used + length :].equal(was[:, :, used + length :])


def of_filled():
    """Attention to the keys that a cache has."""
    made = _core.RowProgram(1)
    product = made.linear(0, MATRICES[0], -1, None, -1, "float32")
    mixed = made.attention_with_cache(product, -1, -1, (COLUMNS[0], 2**30, 0), *SIZES[1:])
    made.add_output(made.linear(mixed, MATRICES[1], -1, None, 0, "float32"))
    return made


@pytest.mark.parametrize(("batch", "length"), [(1, 1), (3, 1), (2, 5), (900, 1), (2, 450), (0, 1), (2, 0)])
@pytest.mark.parametrize("used", [1, 40])
@pytest.mark.parametrize("name", OPTIONS)
def test_nothing_is_appended(batch, length, used, name):
    x, (mask, causal, scale, others) = (
        random(batch, length, WIDTH, seed=5),
        OPTIONS[name](batch, length, used),
    )
    for room in (0, 3):
        keys, values = memory(batch, used + room)
        before = keys.clone(), values.clone()
        queries = heads_of(linear(x, MATRICES[0]), 0, HEADS, DIM)
        mixed = headlane.scaled_dot_product_attention(
            queries,
            keys[:, :, :used],
            values[:, :, :used],
            mask,
            0.0,
            causal,
            scale,
            enable_gqa=True,
            **others,
        )
        given = (mask, causal, scale, others, (keys, values, used))
        (result,) = run(of_filled(), [x], (), [given])
        assert result.equal(linear(mixed.transpose(1, 2).flatten(2), MATRICES[1], residual=x))
        assert keys.equal(before[0])
        assert values.equal(before[1])
        too_many = (mask, causal, scale, others, (keys, values, used + room + 1))
        assert run(of_filled(), [x], (), [too_many]) is None


@pytest.mark.parametrize("dtype", TYPES[1:])
def test_16_bits(dtype):
    x, options = random(2, 3, WIDTH, dtype=dtype), (None, False, None, {})
    keys, values = memory(2, 20, dtype)
    made, *filled = one_by_one(x, keys[:, :, :9], values[:, :, :9], options)
    (result,) = run(program(), [x], (), [(*options, (keys, values, 9))])
    assert result.equal(made)
    assert all(there[:, :, :12].equal(wanted) for there, wanted in zip((keys, values), filled))


def test_memory_in_another_order():
    """Positions before heads, and room between them."""
    x, options, expected = random(2, 3, WIDTH), (None, False, None, {}), memory(2, 20)
    strided = [torch.zeros(2, 25, KV_HEADS, 10)[:, 2:22, :, : y.shape[-1]].transpose(1, 2) for y in expected]
    for one, other in zip(strided, expected):
        one.copy_(other)
    (wanted,) = run(program(), [x], (), [(*options, (*expected, 9))])
    (made,) = run(program(), [x], (), [(*options, (*strided, 9))])
    assert made.equal(wanted)
    assert all(one.equal(other) for one, other in zip(strided, expected))


KEYS, VALUES = memory(2, 20)


@pytest.mark.parametrize(
    ("keys", "values", "used"),
    [
        (KEYS, VALUES, 18),  # no room
        (KEYS[:, :, :11], VALUES, 9),
        (KEYS, VALUES[:, :, :11], 9),
        (KEYS, VALUES, -1),
        (KEYS, VALUES, 2**62),
        (KEYS[:1], VALUES, 9),
        (KEYS[:, :1], VALUES, 9),
        (KEYS[..., :7], VALUES, 9),
        (KEYS, KEYS, 9),
        (KEYS[0], VALUES, 9),
        (KEYS.half(), VALUES.half(), 9),
        (KEYS.transpose(2, 3).contiguous().transpose(2, 3), VALUES, 9),
    ],
)
def test_memory_that_does_not_fit(keys, values, used):
    before = keys.clone(), values.clone()
    assert run(program(), [random(2, 3, WIDTH)], (), [(None, False, None, {}, (keys, values, used))]) is None
    assert keys.equal(before[0])
    assert values.equal(before[1])


def test_a_product_that_is_too_narrow():
    for which in range(3):
        made = _core.RowProgram(1)
        product = made.linear(0, MATRICES[0], -1, None, -1, "float32")
        columns = list(COLUMNS)
        columns[which] = ALL - 1
        made.add_output(made.attention_with_cache(product, product, product, tuple(columns), *SIZES[1:]))
        given = (None, False, None, {}, (KEYS, VALUES, 9))
        assert run(made, [random(2, 3, WIDTH)], (), [given]) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 0}, "a size is 0"),
        ({"value_dim": -1}, "a size is -1"),
        ({"head_dim": 2**40}, "a size is 1099511627776"),
        ({"heads": 3}, "3 heads are no multiple of 2"),
        ({"columns": (0, -1, 0)}, "a column is -1"),
        ({"columns": (0, 0, 2**40)}, "a column is 1099511627776"),
        ({"keys": -1}, "there is no value -1"),
        ({"values": 1}, "there is no value 1"),
    ],
)
def test_errors(change, message):
    names = ("columns", "heads", "kv_heads", "head_dim", "value_dim")
    given = {"queries": 0, "keys": 0, "values": 0, **dict(zip(names, SIZES)), **change}
    with pytest.raises(ValueError, match=message):
        _core.RowProgram(1).attention_with_cache(**given)


def test_memory_that_cannot_be_written():
    with pytest.raises(ValueError, match=r"RowProgram.run: an attention with a cache is given none"):
        run(program(), [random(2, 3, WIDTH)], (), [(None, False, None, {})])
    fixed = VALUES.numpy().copy()
    fixed.setflags(write=False)
    with pytest.raises(ValueError, match=r"RowProgram.run: values.* read-only"):
        run(program(), [random(2, 3, WIDTH)], (), [(None, False, None, {}, (KEYS, fixed, 9))])
