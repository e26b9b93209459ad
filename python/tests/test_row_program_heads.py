"""_core.RowProgram: operations on each head."""

import headlane
import pytest
from headlane import _core

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from row_programs import TYPES, WIDTH, linear, packed, random, run  # noqa: E402

PAIRS = (
    "halves",
    "halves_backwards",
    "neighbours",
    "neighbours_by_pair",
    "neighbours_by_half",
    "neighbours_to_halves",
)
IN_FLOAT32 = True


def rotary(head_dim=8, rotary_dim=8, pairs="halves"):
    """A program that turns its value and one that it makes of it: a result between operations."""
    program = _core.RowProgram(1)
    matrix = packed(WIDTH, 2 * WIDTH, 1)
    program.add_output(program.rotary(0, 0, 1, head_dim, rotary_dim, pairs, not IN_FLOAT32))
    product = program.linear(0, matrix, -1, None, -1, "float32")
    program.add_output(program.rotary(product, 0, 1, head_dim, rotary_dim, pairs, not IN_FLOAT32))
    return program, matrix


def turned(x, cosines, sines, head_dim=8, pairs="halves"):
    """As transformers writes it."""
    heads, tables = x.unflatten(-1, (-1, head_dim)), (cosines.unsqueeze(2), sines.unsqueeze(2))
    if pairs == "neighbours_by_half":
        return turned(x, *(torch.cat((x, x), -1) for x in (cosines, sines)), head_dim, "neighbours_by_pair")
    if pairs == "halves_backwards":
        return turned(x, cosines, -sines, head_dim)
    first, rest = heads[..., : cosines.shape[-1]], heads[..., cosines.shape[-1] :]
    one, two = first.chunk(2, -1) if pairs == "halves" else (first[..., ::2], first[..., 1::2])
    if pairs == "neighbours_to_halves":
        c, s = (table[..., : table.shape[-1] // 2] for table in tables)
        return torch.cat((one * c - two * s, two * c + one * s, rest), -1).flatten(2)
    is_of_halves = pairs == "halves"
    exchanged = torch.cat((-two, one), -1) if is_of_halves else torch.stack((-two, one), -1).flatten(-2)
    if pairs == "neighbours_by_pair":
        tables = [table[..., : table.shape[-1] // 2].repeat_interleave(2, dim=-1) for table in tables]
    made = first * tables[0] + exchanged * tables[1]
    return torch.cat((made, rest), -1).flatten(2)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("length", [1, 7, 300])
@pytest.mark.parametrize("pairs", PAIRS)
def test_rotary(batch, length, pairs):
    program, matrix = rotary(pairs=pairs)
    x = random(3, length, WIDTH)
    width = 4 if pairs == "neighbours_by_half" else 8
    tables = [random(batch, length, width, seed=seed) for seed in (1, 2)]
    for threads in (1, 2):
        one, two = run(program, [x], tables, threads=threads)
        assert one.equal(turned(x, *tables, pairs=pairs))
        assert two.equal(turned(linear(x, matrix), *tables, pairs=pairs))
    strided = [torch.cat((table, table), 1)[:, :length] for table in tables]
    assert run(program, [x], strided)[0].equal(one)


@pytest.mark.parametrize("rotary_dim", [0, 2, 6, 8])
@pytest.mark.parametrize("pairs", PAIRS)
def test_rotary_of_the_first_numbers(rotary_dim, pairs):
    """Of a number that is fixed, or of as many as the tables have."""
    x = random(3, 5, WIDTH)
    for width in (0, 2, 6, 8, 10, 3):
        tables = [random(1, 5, width, seed=seed) for seed in (1, 2)]
        program, matrix = rotary(rotary_dim=rotary_dim, pairs=pairs)
        made = run(program, [x], tables)
        numbers = 2 * width if pairs == "neighbours_by_half" else width
        if rotary_dim not in (0, numbers) or numbers in (3, 10, 12, 16, 20):
            assert made is None
        else:
            assert made[0].equal(turned(x, *tables, pairs=pairs))
            assert made[1].equal(turned(linear(x, matrix), *tables, pairs=pairs))
        if width:
            assert run(program, [x], [tables[0], tables[1][..., 1:]]) is None


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("length", [1, 7, 300])
def test_factors_of_positions(dtype, batch, length):
    program = _core.RowProgram(1)
    program.add_output(program.weigh(0, 0))
    program.add_output(program.weigh(program.scale(0, 0.5), 0))
    x, factors = random(3, length, WIDTH, dtype=dtype), random(batch, length, 1, seed=1, dtype=dtype)
    for threads in (1, 2):
        one, two = run(program, [x], [factors], threads=threads)
        assert one.equal(x * factors)
        assert two.equal(x * 0.5 * factors)
    for other in (factors[0], factors[:, 1:], factors.expand(-1, -1, 2).contiguous(), None):
        assert run(program, [x], [other]) is None
    assert run(program, [x[0]], [factors]) is None


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(3, 7), (1500, 1), (0, 4)])
def test_join(dtype, shape):
    program = _core.RowProgram(2)
    program.add_output(program.join(0, 1, 8, 4))
    program.add_output(program.join(0, program.columns(1, 3, 8, 0), 8, 5))  # one for all heads
    x, other = random(*shape, WIDTH, dtype=dtype), random(*shape, 12, seed=1, dtype=dtype)
    heads = x.unflatten(-1, (3, 8))
    for threads in (1, 2):
        each, one = run(program, [x, other], threads=threads)
        assert each.equal(torch.cat((heads, other.unflatten(-1, (3, 4))), -1).flatten(-2))
        assert one.equal(torch.cat((heads, other[..., None, 3:8].expand(*shape, 3, 5)), -1).flatten(-2))
    for width in (8, 16):  # as many heads, or one
        assert run(program, [x, random(*shape, width, dtype=dtype)]) is None
    assert run(program, [random(*shape, 20, dtype=dtype), other]) is None  # no heads of 8


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(3, 7), (1500, 1), (0, 4)])
def test_heads_times_numbers(dtype, shape):
    program = _core.RowProgram(2)
    program.add_output(program.multiply_heads(0, 1, 8))
    x, numbers = random(*shape, WIDTH, dtype=dtype), random(*shape, 3, seed=1, dtype=dtype)
    for threads in (1, 2):
        (made,) = run(program, [x, numbers], threads=threads)
        assert made.equal((x.unflatten(-1, (3, 8)) * numbers.unsqueeze(-1)).flatten(-2))
    for width in (1, 2, WIDTH):
        assert run(program, [x, random(*shape, width, dtype=dtype)]) is None
    assert run(program, [random(*shape, 20, dtype=dtype), numbers]) is None


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("centred", [True, False])
def test_norms_of_heads(dtype, centred):
    program = _core.RowProgram(1)
    product = program.linear(0, packed(WIDTH, 2 * WIDTH, 1), -1, None, -1, "float32")
    program.add_output(program.norm(centred, product, 0, -1, 1e-5, -1, 8))
    x, weight = random(3, 50, WIDTH, dtype=dtype), random(8, seed=1, dtype=dtype)
    heads = linear(x, packed(WIDTH, 2 * WIDTH, 1)).unflatten(-1, (-1, 8))
    if centred:
        expected = headlane.layer_norm(heads, weight, None, 1e-5)
    else:
        expected = headlane.rms_norm(heads, weight, 1e-5)
    assert run(program, [x], [weight])[0].equal(expected.flatten(2))
    assert run(program, [x], [random(6)]) is None


@pytest.mark.parametrize("dtype", TYPES[1:])
@pytest.mark.parametrize("pairs", PAIRS)
def test_rotary_of_16_bits(dtype, pairs):
    """Products and sums are rounded, as PyTorch's are, or in float32, and then to 16 bits."""
    x = random(2, 3, WIDTH, dtype=dtype)
    program = _core.RowProgram(1)
    for in_float32 in (False, IN_FLOAT32):
        program.add_output(program.rotary(0, 0, 1, 8, 8, pairs, in_float32))
    for type_of_tables in (dtype, torch.float32):
        width = 4 if pairs == "neighbours_by_half" else 8
        tables = [random(2, 3, width, seed=seed, dtype=type_of_tables) for seed in (1, 2)]
        narrow, wide = run(program, [x], tables)
        assert wide.equal(turned(x.float(), *tables, pairs=pairs).to(dtype))
        assert not narrow.equal(wide)
        if type_of_tables is dtype:
            assert narrow.equal(turned(x, *tables, pairs=pairs))


@pytest.mark.parametrize("shape", [(2, 5, 8), (3, 4, 8), (3, 5, 6), (5, 8), (1, 1, 8)])
def test_tables_that_do_not_fit(shape):
    program, _ = rotary()
    x, table = random(3, 5, WIDTH), random(3, 5, 8)
    assert run(program, [x], [table, table]) is not None
    for tables in ((random(*shape), table), (table, random(*shape)), (None, table)):
        assert run(program, [x], tables) is None
    assert run(program, [x[0]], [table, table]) is None
    assert run(rotary(10, 10)[0], [x], [random(3, 5, 10)] * 2) is None  # no multiple is 24
