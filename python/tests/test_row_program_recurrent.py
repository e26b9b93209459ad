"""_core.RowProgram: linear attention, its convolution and the norm after it, and the states that runs write."""

import headlane
import pytest
from headlane import _core

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from row_programs import (  # noqa: E402
    TYPES,
    WIDTH,
    attended,
    convolved,
    gated_norm,
    linear,
    packed,
    random,
    run,
)

# Of the product that is convolved: a column that none reads, values, queries, keys, two columns.
HEADS, KEY_HEADS, DIM, VALUE_DIM, KERNEL = 4, 2, 6, 5, 4
COLUMNS = (1 + HEADS * VALUE_DIM, 1 + HEADS * VALUE_DIM + KEY_HEADS * DIM, 1)
CHANNELS = COLUMNS[1] + KEY_HEADS * DIM + 2
SIZES = (HEADS, KEY_HEADS, DIM, VALUE_DIM)
EPS = 1e-6
# The widths of a gate and of its bias: a number for each head, or for each row of its state.
GATES = [(HEADS, HEADS), (HEADS * DIM, HEADS), (HEADS * DIM, HEADS * DIM)]


def vectors_for(bias=HEADS, seed=50):
    """The weight and bias of the convolution, a_log, dt_bias, and the weight of the norm."""
    shapes = ((CHANNELS, KERNEL), (CHANNELS,), (HEADS,), (bias,), (VALUE_DIM,))
    return [random(*shape, seed=seed + i) for i, shape in enumerate(shapes)]


def states_for(batch, dtype=torch.float32):
    return [
        random(batch, CHANNELS, KERNEL, seed=60, dtype=dtype),
        random(batch, HEADS, DIM, VALUE_DIM, seed=61),
    ]


def copied(states):
    return [None if x is None else x.clone() for x in states]


def all_equal(one, other):
    return len(one) == len(other) and all(x.equal(y) for x, y in zip(one, other))


class Layer:
    """As a layer with Gated DeltaNet; what attention returns is an output, too."""

    def __init__(self, gate=HEADS, bias=HEADS):
        widths = CHANNELS, gate, HEADS, HEADS * VALUE_DIM
        self.matrices = [packed(WIDTH, width, seed) for seed, width in enumerate(widths)]
        self.matrices.append(packed(HEADS * VALUE_DIM, WIDTH, 5))
        self.vectors = vectors_for(bias)
        program = self.program = _core.RowProgram(1)
        mixed, decay, beta, z = (
            program.linear(0, x, -1, None, -1, "float32") for x in self.matrices[: len(widths)]
        )
        beta = program.activate("sigmoid", beta)
        mixed = program.convolve(mixed, 0, 1, "silu")
        made = program.linear_attention((mixed,) * 3, COLUMNS, (decay, beta), (2, 3), EPS, *SIZES)
        normed = program.gated_norm(made, z, 4, EPS, "silu", VALUE_DIM, False)
        program.add_output(program.linear(normed, self.matrices[4], -1, None, 0, "float32"))
        program.add_output(made)

    def run(self, x, states=(None, None), threads=1, vectors=None):
        return run(self.program, [x], self.vectors if vectors is None else vectors, (), threads, states)

    def one_by_one(self, x, states=(None, None)):
        """By functions of the package; the states, too, after it."""
        weight, bias, a_log, dt_bias, scale = self.vectors
        mixed, decay, beta, z = (linear(x, y) for y in self.matrices[:4])
        mixed, kept = convolved(mixed, weight, bias, "silu", states[0])
        state = None if states[1] is None else states[1].clone()
        gates = decay, headlane.sigmoid(beta)
        made = attended((mixed,) * 3, COLUMNS, gates, (a_log, dt_bias), SIZES, EPS, state)
        normed = gated_norm(made, z, scale, EPS, "silu", VALUE_DIM)
        return [linear(normed, self.matrices[4], residual=x), made], [kept, state]


# One token, fewer than the convolution is wide, more; sequences that a run cuts in groups.
SHAPES = [(1, 1), (2, 1), (3, 2), (2, 3), (2, 4), (3, 5), (2, 70), (300, 4), (1500, 1), (3, 450)]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_layer(shape, dtype):
    layer, x = Layer(), random(*shape, WIDTH, seed=30, dtype=dtype)
    expected = layer.one_by_one(x)[0]
    for threads in (1, 2):
        made = layer.run(x, threads=threads)
        assert [y.dtype for y in made] == [dtype, dtype]
        assert all_equal(made, expected)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_layer_with_states(shape, dtype):
    layer, x = Layer(), random(*shape, WIDTH, seed=30, dtype=dtype)
    before = states_for(shape[0], dtype)
    expected, after = layer.one_by_one(x, before)
    assert not expected[0].equal(layer.one_by_one(x)[0][0])
    for threads in (1, 2):
        states = copied(before)
        assert all_equal(layer.run(x, states, threads), expected)
        assert all_equal(states, after)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("gate", "bias"), GATES)
def test_decays(gate, bias, dtype):
    layer, x = Layer(gate, bias), random(3, 7, WIDTH, seed=31, dtype=dtype)
    for before in (states_for(3, dtype), [None, None]):
        expected, after = layer.one_by_one(x, before)
        states = copied(before)
        assert all_equal(layer.run(x, states), expected)
        if states[0] is not None:
            assert all_equal(states, after)


def check_one_state(layer, before, which):
    """A run has one of two states, of 150 sequences."""
    x = random(150, 7, WIDTH, seed=31)
    before[1 - which] = None
    expected, after = layer.one_by_one(x, before)
    states = copied(before)
    assert all_equal(layer.run(x, states), expected)
    assert states[1 - which] is None
    assert states[which].equal(after[which])


@pytest.mark.parametrize("which", [0, 1])
def test_one_of_two_states(which):
    check_one_state(Layer(), states_for(150), which)


def check_runs(layer, whole, states, ends):
    """Runs with `states` have the bits of one with `whole`, of 3 sequences; both begin with zeros."""
    x, parts, begin = random(3, 20, WIDTH, seed=32, dtype=whole[0].dtype), [], 0
    expected = layer.run(x, whole)
    assert all_equal(expected, layer.run(x))
    for end in ends:
        parts.append(layer.run(x[:, begin:end].contiguous(), states))
        begin = end
    assert all_equal([torch.cat(y, 1) for y in zip(*parts)], expected)
    assert all_equal(states, whole)


ENDS = [range(1, 21), (2, 3, 8, 20), (19, 20), (4, 8, 20)]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("ends", ENDS)
def test_several_runs(ends, dtype):
    whole = [torch.zeros_like(y) for y in states_for(3, dtype)]
    check_runs(Layer(*GATES[2]), whole, copied(whole), ends)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("width", [1, 2, 3, 8, 64])
def test_convolutions(width, dtype):
    """Two of one program have a state each."""
    weights = [random(WIDTH, width, seed=seed) / width**0.5 for seed in (1, 2)]
    bias = random(WIDTH, seed=3)
    program = _core.RowProgram(1)
    one = program.convolve(0, 0, -1, None)
    program.add_output(one)
    program.add_output(program.convolve(one, 2, 1, "gelu"))
    for length in (1, 2, 5, 9, 64, 100):
        x = random(3, length, WIDTH, seed=4, dtype=dtype)
        for before in ([random(3, WIDTH, width, seed=y, dtype=dtype) for y in (5, 6)], [None, None]):
            first, kept = convolved(x, weights[0], None, None, before[0])
            second, others = convolved(first, weights[1], bias, "gelu", before[1])
            states = copied(before)
            given = [weights[0], bias, weights[1]]
            assert all_equal(run(program, [x], given, (), 2, states), [first, second])
            if kept is not None:
                assert all_equal(states, [kept, others])


def test_the_oldest_column():
    """No token reads it, and what is kept are the last inputs."""
    program, weight = _core.RowProgram(1), random(2, 3)
    program.add_output(program.convolve(0, 0, -1, None))
    for length, kept in ((1, [2, 3, 10]), (2, [3, 10, 11]), (3, [10, 11, 12]), (5, [12, 13, 14])):
        x = (torch.arange(length) + 10.0).view(1, length, 1).expand(1, length, 2).contiguous()
        state, other = (torch.tensor([[[y, 2.0, 3.0]] * 2]) for y in (1.0, float("nan")))
        (made,) = run(program, [x], [weight], states=[state])
        assert state.tolist() == [[kept] * 2]
        assert run(program, [x], [weight], states=[other])[0].equal(made)
        assert other.equal(state)


def of_inputs(columns=COLUMNS, sizes=SIZES, eps=EPS):
    """Linear attention of queries, keys, values, gate and beta that a run is given."""
    program = _core.RowProgram(5)
    program.add_output(program.linear_attention((0, 1, 2), columns, (3, 4), (0, 1), eps, *sizes))
    return program


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "sizes", [(1, 1, 3, 2), (4, 4, 6, 5), (6, 2, 16, 40), (6, 1, 9, 1), (2, 1, 128, 64), (1, 1, 512, 512)]
)
def test_values_of_their_own(sizes, dtype):
    """Queries, keys and values in values of other widths, and heads of other sizes."""
    heads, key_heads, dim, value_dim = sizes
    columns, read = (3, 0, 7), (key_heads * dim, key_heads * dim, heads * value_dim)
    batch, length = 2, 5
    widths = (*(x + y for x, y in zip(columns, read)), heads, heads)
    values = [random(batch, length, x, seed=y, dtype=dtype) for y, x in enumerate(widths)]
    values[1] = torch.cat((values[1], values[1][..., :1]), 2)  # more than is read
    vectors = [random(heads, seed=6), random(heads, seed=7)]
    for eps in (1e-6, 0.5):
        state = random(batch, heads, dim, value_dim, seed=8)
        after = state.clone()
        expected = attended(values[:3], columns, values[3:], vectors, sizes, eps, after)
        (made,) = run(of_inputs(columns, sizes, eps), values, vectors, states=[state])
        assert made.equal(expected)
        assert state.equal(after)


def test_beside_attention():
    """Operations with a state and attentions have numbers of their own."""
    program, heads = _core.RowProgram(1), WIDTH // 6
    first = program.attention(0, 0, 0, heads)
    one = program.convolve(first, 0, -1, "relu")
    second = program.attention(one, one, one, heads)
    program.add_output(program.convolve(second, 1, -1, None))
    x, weights = random(200, 4, WIDTH), [random(WIDTH, 3, seed=y) for y in (1, 2)]
    states = [random(200, WIDTH, 3, seed=y) for y in (3, 4)]
    before = copied(states)
    options = [(None, y, None, {}) for y in (True, False)]

    def mixed(x, causal):
        q = x.unflatten(-1, (heads, 6)).transpose(1, 2)
        return headlane.scaled_dot_product_attention(q, q, q, None, 0.0, causal).transpose(1, 2).flatten(2)

    one, kept = convolved(mixed(x, True), weights[0], None, "relu", before[0])
    made, others = convolved(mixed(one, False), weights[1], None, None, before[1])
    assert all_equal(run(program, [x], weights, options, 1, states), [made])
    assert all_equal(states, [kept, others])


def test_vectors_in_another_order():
    """Of other types, too; they are read in each run."""
    layer, x = Layer(*GATES[2]), random(3, 7, WIDTH, seed=34)
    layer.vectors = [y.bfloat16().float() for y in layer.vectors]
    expected = layer.one_by_one(x)[0]
    narrow = [y.bfloat16() for y in layer.vectors]
    strided = [torch.stack((y, -y), -1)[..., 0] for y in layer.vectors]
    strided[0] = layer.vectors[0].t().contiguous().t()
    for vectors in (narrow, strided, [y.numpy() for y in layer.vectors]):
        assert all_equal(layer.run(x, vectors=vectors), expected)
    for vector in layer.vectors:
        vector.mul_(0.5)
        made = layer.run(x)
        assert not made[0].equal(expected[0])
        expected = layer.one_by_one(x)[0]
        assert all_equal(made, expected)
