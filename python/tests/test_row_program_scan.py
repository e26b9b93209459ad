"""_core.RowProgram: Mamba-2 as a model has it, with states [batch, heads, head_dim, state_size]."""

import itertools

import pytest
from headlane import _core

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from row_programs import (  # noqa: E402
    NO_LIMITS,
    TYPES,
    WIDTH,
    convolved,
    gated_norm,
    linear,
    packed,
    random,
    run,
    scanned,
)
from test_row_program_recurrent import ENDS, SHAPES, Layer, all_equal, check_one_state, check_runs, copied  # noqa: E402

HEADS, GROUPS, STATE_SIZE, DIM, KERNEL, EPS = 4, 2, 6, 5, 4, 1e-6
SIZES = (HEADS, GROUPS, STATE_SIZE, DIM)


def columns_for(groups):
    """Of what is convolved: C is behind B, which is behind x. And how many columns that are."""
    of_b = HEADS * DIM
    of_c = of_b + groups * STATE_SIZE
    return (of_c, of_b, 0), of_c + groups * STATE_SIZE


COLUMNS, CHANNELS = columns_for(GROUPS)


def states_for(batch, dtype=torch.float32, channels=CHANNELS):
    return [
        random(batch, channels, KERNEL, seed=60, dtype=dtype),
        random(batch, HEADS, DIM, STATE_SIZE, seed=61),
    ]


def turned(states):
    """The last two axes of Mamba-2's state are exchanged in memory, as the package makes it for a model."""
    return [states[0].clone(), states[1].mT.contiguous().mT]


class Mixer(Layer):
    """As a layer of Mamba-2; what is scanned is an output, too."""

    def __init__(self, groups=GROUPS, parts=2, skip=True):
        """parts: the groups of the norm."""
        self.sizes, self.of_norm = (HEADS, groups, STATE_SIZE, DIM), HEADS * DIM // parts
        self.columns, channels = columns_for(groups)
        self.widths = HEADS * DIM, channels, HEADS
        self.matrices = [packed(WIDTH, sum(self.widths), 1, scale=0.25), packed(HEADS * DIM, WIDTH, 2)]
        shapes = ((channels, KERNEL), (channels,), (HEADS,), (HEADS,), (HEADS * DIM,), *[(HEADS,)] * skip)
        self.vectors = [random(*shape, seed=50 + i) for i, shape in enumerate(shapes)]
        program = self.program = _core.RowProgram(1)
        all_of_it = program.linear(0, self.matrices[0], -1, None, -1, "float32")
        ends = itertools.accumulate(self.widths)
        z, mixed, dt = (program.columns(all_of_it, y - x, y, 0) for x, y in zip(self.widths, ends))
        mixed = program.convolve(mixed, 0, 1, "silu")
        made = program.scan((mixed,) * 3, self.columns, dt, (2, 3, 5 if skip else -1), NO_LIMITS, *self.sizes)
        normed = program.gated_norm(made, z, 4, EPS, "silu", self.of_norm if parts > 1 else 0, True)
        program.add_output(program.linear(normed, self.matrices[1], -1, None, 0, "float32"))
        program.add_output(made)

    def one_by_one(self, x, states=(None, None)):
        """By functions of the package; the states, too, after it."""
        weight, bias, a_log, dt_bias, scale, *skip = self.vectors
        z, mixed, dt = linear(x, self.matrices[0]).split(self.widths, -1)
        mixed, kept = convolved(mixed.contiguous(), weight, bias, "silu", states[0])
        state = None if states[1] is None else states[1].clone()
        vectors = a_log, dt_bias, *(skip or [None])
        made = scanned((mixed,) * 3, self.columns, dt, vectors, self.sizes, state)
        normed = gated_norm(made, z, scale, EPS, "silu", self.of_norm, gate_first=True)
        return [linear(normed, self.matrices[1], residual=x), made], [kept, state]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_layer(shape, dtype):
    layer, x = Mixer(), random(*shape, WIDTH, seed=30, dtype=dtype)
    expected = layer.one_by_one(x)[0]
    for threads in (1, 2):
        made = layer.run(x, threads=threads)
        assert [y.dtype for y in made] == [dtype, dtype]
        assert all_equal(made, expected)
        assert all(y.isfinite().all() for y in made)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_layer_with_states(shape, dtype):
    layer, x = Mixer(), random(*shape, WIDTH, seed=30, dtype=dtype)
    before = states_for(shape[0], dtype)
    expected, after = layer.one_by_one(x, before)
    assert not expected[0].equal(layer.one_by_one(x)[0][0])
    for threads in (1, 2):
        for states in (copied(before), turned(before)):
            strides = states[1].stride()
            assert all_equal(layer.run(x, states, threads), expected)
            assert all_equal(states, after)
            assert states[1].stride() == strides


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("groups", [1, 2, HEADS])
def test_kinds(groups, parts, skip, dtype):
    """B and C of all heads, of some and of each; groups of the norm; without D."""
    layer, x = Mixer(groups, parts, skip), random(3, 7, WIDTH, seed=31, dtype=dtype)
    for before in (states_for(3, dtype, columns_for(groups)[1]), [None, None]):
        expected, after = layer.one_by_one(x, before)
        states = copied(before)
        assert all_equal(layer.run(x, states), expected)
        if states[0] is not None:
            assert all_equal(states, after)


@pytest.mark.parametrize("which", [0, 1])
def test_one_of_two_states(which):
    check_one_state(Mixer(), states_for(150), which)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("ends", ENDS)
def test_several_runs(ends, dtype):
    whole = [torch.zeros_like(y) for y in states_for(3, dtype)]
    states = [whole[0].clone(), torch.zeros(3, HEADS, STATE_SIZE, DIM).transpose(2, 3)]
    check_runs(Mixer(), whole, states, ends)


def of_inputs(sizes, columns, skip=2, limits=NO_LIMITS):
    """A scan of C, B, x and dt that a run is given."""
    program = _core.RowProgram(4)
    program.add_output(program.scan((0, 1, 2), columns, 3, (0, 1, skip), limits, *sizes))
    return program


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "sizes",
    [(1, 1, 3, 2), (4, 4, 6, 5), (6, 2, 16, 40), (6, 1, 1, 9), (2, 1, 128, 64), (1, 1, 512, 512)],
)
def test_values_of_their_own(sizes, dtype):
    """C, B and x in values of other widths, and heads of other sizes; with D, and where it is None or absent."""
    heads, groups, state_size, dim = sizes
    columns, read = (3, 0, 7), (groups * state_size, groups * state_size, heads * dim)
    widths = (*(x + y for x, y in zip(columns, read)), heads)
    values = [random(2, 5, x, seed=y, dtype=dtype) for y, x in enumerate(widths)]
    values[1] = torch.cat((values[1], values[1][..., :1]), 2)  # more than is read
    vectors = [random(heads, seed=6 + y) for y in range(3)]
    for given, skip in ((vectors, 2), ([*vectors[:2], None], 2), (vectors[:2], -1)):
        state = random(2, heads, dim, state_size, seed=9)
        after = state.clone()
        of_all = (*given[:2], given[2] if len(given) > 2 else None)
        before = state.clone()
        expected = scanned(values[:3], columns, values[3], of_all, sizes, after)
        (made,) = run(of_inputs(sizes, columns, skip), values, given, states=[state])
        assert made.equal(expected)
        assert state.equal(after)
        limits, after = (0.3, 0.9), before.clone()
        limited = scanned(values[:3], columns, values[3], of_all, sizes, after, limits)
        (made,) = run(of_inputs(sizes, columns, skip, limits), values, given, states=[before])
        assert made.equal(limited)
        assert not made.equal(expected)
        assert before.equal(after)


def test_formula():
    """As models write it, in float64: the state of a head is [head_dim, state_size]."""
    widths = (GROUPS * STATE_SIZE, GROUPS * STATE_SIZE, HEADS * DIM, HEADS)
    values = [random(2, 9, width, seed=seed) for seed, width in enumerate(widths)]
    vectors, state = [random(HEADS, seed=5 + y) for y in range(3)], states_for(2)[1]
    c, b, x, dt = (y.double() for y in values)
    a_log, dt_bias, d = (y.double() for y in vectors)
    c, b = (y.unflatten(-1, (GROUPS, -1)).repeat_interleave(HEADS // GROUPS, 2) for y in (c, b))
    x, dt = x.unflatten(-1, (HEADS, DIM)), torch.nn.functional.softplus(dt + dt_bias)
    s, rows = state.double(), []
    for t in range(9):
        decay = (-dt[:, t] * a_log.exp()).exp()[..., None, None]
        s = decay * s + (dt[:, t, :, None] * x[:, t])[..., None] * b[:, t, :, None]
        rows.append((s @ c[:, t, ..., None])[..., 0] + d[:, None] * x[:, t])
    (made,) = run(of_inputs(SIZES, (0, 0, 0)), values, vectors, states=[state])
    exact = torch.stack(rows, 1).flatten(2)
    assert (made - exact).abs().max() < 4e-6 * exact.abs().max()
    assert (state - s).abs().max() < 4e-6 * s.abs().max()


@pytest.mark.parametrize("dtype", TYPES)
def test_states_in_another_order(dtype):
    """With room between numbers, sequences and heads exchanged; PyTorch is told that they are written."""
    layer, x, before = Mixer(), random(150, 6, WIDTH, seed=33, dtype=dtype), states_for(150, dtype)
    expected, after = layer.one_by_one(x, before)
    memory = torch.full((HEADS, 150, 2 * STATE_SIZE, DIM + 1), 7.0)
    states = [before[0].clone(), memory.permute(1, 0, 3, 2)[:, :, 1:, ::2]]
    states[1].copy_(before[1])
    version = states[1]._version
    assert all_equal(layer.run(x, states), expected)
    assert all_equal(states, after)
    assert states[1]._version > version
    assert (memory[..., 0] == 7).all()
    assert (memory[:, :, 1::2] == 7).all()


def test_numpy():
    layer, x, states = Mixer(), random(3, 7, WIDTH, seed=35), turned(states_for(3))
    expected, after = layer.one_by_one(x, states)
    made = layer.run(x.numpy(), [y.numpy() for y in states], vectors=[y.numpy() for y in layer.vectors])
    assert all_equal([torch.from_numpy(y) for y in made], expected)
    assert all_equal(states, after)


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0)])
def test_nothing(shape):
    layer, states = Mixer(), states_for(shape[0])
    before = copied(states)
    for given in (states, [None, None]):
        made = layer.run(random(*shape, WIDTH), given)
        assert [x.shape for x in made] == [(*shape, WIDTH), (*shape, HEADS * DIM)]
    assert all_equal(states, before)
