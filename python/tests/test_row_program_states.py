"""_core.RowProgram: the memory of states, and what does not fit or is refused, which writes none."""

import pytest
from headlane import _core

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from row_programs import TYPES, WIDTH, random, refuses, run  # noqa: E402
from test_row_program_recurrent import (  # noqa: E402
    CHANNELS,
    COLUMNS,
    DIM,
    EPS,
    HEADS,
    KERNEL,
    KEY_HEADS,
    SIZES,
    VALUE_DIM,
    Layer,
    all_equal,
    copied,
    of_inputs,
    states_for,
    vectors_for,
)


@pytest.mark.parametrize("dtype", TYPES)
def test_states_in_another_order(dtype):
    """With room between numbers, and axes exchanged."""
    layer, x, before = Layer(), random(150, 6, WIDTH, seed=33, dtype=dtype), states_for(150, dtype)
    expected, after = layer.one_by_one(x, before)
    memory = [
        torch.full((KERNEL + 1, 150, 2 * CHANNELS), 7.0, dtype=dtype),
        torch.full((150, VALUE_DIM, DIM + 1, HEADS), 7.0),
    ]
    states = [memory[0].permute(1, 2, 0)[:, ::2, 1:], memory[1].permute(0, 3, 2, 1)[:, :, :-1]]
    for one, other in zip(states, before):
        one.copy_(other)
    assert all_equal(layer.run(x, states), expected)
    assert all_equal(states, after)
    assert (memory[0][0] == 7).all()
    assert (memory[0][..., 1::2] == 7).all()
    assert (memory[1][:, :, -1] == 7).all()


def test_numpy():
    layer, x, states = Layer(), random(3, 7, WIDTH, seed=35), states_for(3)
    expected, after = layer.one_by_one(x, states)
    made = layer.run(x.numpy(), [y.numpy() for y in states])
    assert all_equal([torch.from_numpy(y) for y in made], expected)
    assert all_equal(states, after)


def test_pytorch_is_told_that_states_are_written():
    layer, states = Layer(), states_for(2)
    versions = [x._version for x in states]
    layer.run(random(2, 3, WIDTH), states)
    assert all(x._version > y for x, y in zip(states, versions))


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0)])
def test_nothing(shape):
    layer, states = Layer(), states_for(shape[0])
    before = copied(states)
    for given in (states, [None, None]):
        made = layer.run(random(*shape, WIDTH), given)
        assert [x.shape for x in made] == [(*shape, WIDTH), (*shape, HEADS * VALUE_DIM)]
    assert all_equal(states, before)


# What a run of `small()` is given, all of which fits: values, vectors and states.
VALUES = [random(2, 3, width, seed=width) for width in (CHANNELS, HEADS, HEADS, HEADS * VALUE_DIM)]
VECTORS, STATES = vectors_for(), states_for(2)


def small():
    """The convolution, attention and norm of a layer, of values that a run is given."""
    program = _core.RowProgram(4)
    mixed = program.convolve(0, 0, 1, "silu")
    made = program.linear_attention((mixed,) * 3, COLUMNS, (1, 2), (2, 3), EPS, *SIZES)
    program.add_output(program.gated_norm(made, 3, 4, EPS, "sigmoid", VALUE_DIM, False))
    program.add_output(mixed)
    return program


def result_of(change=(), program=small, **others):
    """Of a run of which some values, vectors and states are others; if there is none, it writes no state."""
    given = {"values": VALUES, "vectors": VECTORS, "states": STATES, **others}
    given = {name: list(x) for name, x in given.items()}
    for (name, place), x in dict(change).items():
        given[name][place] = x
    states = copied(given["states"])
    made = run(program(), given["values"], given["vectors"], states=states)
    if made is None:
        assert all(x is y or x.equal(y) for x, y in zip(given["states"], states))
    return made


def of_width(width):
    return random(2, 3, width)


NO_STATES = {("states", 0): None, ("states", 1): None}
OF_ROWS = ("values", 1), of_width(HEADS * DIM)
FIT = {
    "as it is": {},
    "no bias": {("vectors", 1): None},
    "no weight of the norm": {("vectors", 4): None},
    "no state": NO_STATES,
    "decays of rows": dict([OF_ROWS]),
    "and their bias": dict([OF_ROWS, (("vectors", 3), random(HEADS * DIM))]),
    "another kernel": {("vectors", 0): random(CHANNELS, 3), ("states", 0): random(2, CHANNELS, 3)},
}


@pytest.mark.parametrize("name", FIT)
def test_what_fits(name):
    assert len(result_of(FIT[name])) == 2


def test_states_whose_sequences_share_memory():
    states = [STATES[0][:1].expand_as(STATES[0]), STATES[1].clone()]
    assert run(small(), VALUES, VECTORS, states=states) is None
    assert states[0][0].equal(STATES[0][0])


def others_of(x):
    """Arrays with one more, and one fewer, along each axis; with another axis, and without the first one."""
    for axis in range(x.dim()):
        yield torch.cat((x, x.narrow(axis, 0, 1)), axis)
        yield x.narrow(axis, 0, x.shape[axis] - 1).contiguous()
    yield x.unsqueeze(0)
    yield x[0]


@pytest.mark.parametrize("kind", ["values", "vectors", "states"])
def test_other_sizes(kind):
    for place, one in enumerate({"values": VALUES, "vectors": VECTORS, "states": STATES}[kind]):
        for other in others_of(one):
            assert result_of({(kind, place): other}) is None
            if kind != "states":  # of which that of the convolution says how wide it is
                is_wider = one.dim() == 2 and other.dim() == 2 and len(other) == CHANNELS
                made = result_of({(kind, place): other, **NO_STATES})
                assert (made is not None) is is_wider


@pytest.mark.parametrize(
    "change",
    [
        {("vectors", 0): None},
        {("vectors", 2): None},
        {("vectors", 3): None},
        {("vectors", 3): random(HEADS * DIM)},  # the gate has a number for each head
        {("vectors", 3): random(1)},
        {("vectors", 2): random(1)},
        {**dict([OF_ROWS]), ("vectors", 3): random(HEADS * DIM - 1)},
        {**dict([OF_ROWS]), ("vectors", 2): random(HEADS * DIM)},
        {**dict([OF_ROWS]), ("vectors", 3): random(HEADS, DIM)},
        {("values", 1): of_width(1)},
        {("values", 1): of_width(HEADS * VALUE_DIM)},
        {("values", 2): of_width(1)},
        {("values", 2): of_width(HEADS * DIM)},
        {("values", 3): of_width(VALUE_DIM)},
        {("values", 0): of_width(CHANNELS).transpose(0, 1).contiguous().transpose(0, 1)},
        {("values", 2): of_width(HEADS).half()},
        {("vectors", 0): random(CHANNELS, 0), ("states", 0): None},
        {("vectors", 0): random(CHANNELS), ("states", 0): None},
        {("vectors", 0): random(CHANNELS, 1, KERNEL), ("states", 0): None},
        {("vectors", 0): random(CHANNELS, KERNEL, 1)},
        {("vectors", 0): random(CHANNELS, 65), ("states", 0): None},
        {("vectors", 0): random(CHANNELS, 65), ("states", 0): random(2, CHANNELS, 65)},
        {("states", 0): STATES[0][..., 1:]},  # as the package's function has it
        {("states", 0): STATES[0][:1]},  # would be repeated
        {("states", 0): STATES[0].mT},
        {("states", 0): STATES[0].bfloat16()},
        {("states", 1): STATES[1][:1]},
        {("states", 1): STATES[1][:, :KEY_HEADS]},
        {("states", 1): STATES[1].mT},
        {("states", 1): STATES[1].bfloat16()},
        {("states", 1): STATES[1].half()},
    ],
)
def test_other_things_that_do_not_fit(change):
    assert result_of(change) is None


@pytest.mark.parametrize("dtype", TYPES[1:])
def test_types_of_states(dtype):
    """That of a convolution has the values' type, that of linear attention float32."""
    values, states = [x.to(dtype) for x in VALUES], [STATES[0].to(dtype), STATES[1]]
    assert len(result_of(values=values, states=states)) == 2
    assert result_of(values=values, states=STATES) is None
    assert result_of(values=values, states=[x.to(dtype) for x in STATES]) is None
    other = ({*TYPES[1:]} - {dtype}).pop()
    assert result_of(values=values, states=[STATES[0].to(other), STATES[1]]) is None


def test_sequences_are_needed():
    """Of rows, and of more axes, nothing with a state is computed."""
    for shape in ((6,), (2, 3, 1)):
        assert result_of(NO_STATES, values=[x.reshape(*shape, -1) for x in VALUES]) is None


def test_columns_that_are_not_there():
    widths = [x + y for x, y in zip(COLUMNS, (KEY_HEADS * DIM, KEY_HEADS * DIM, HEADS * VALUE_DIM))]
    values = [random(2, 3, x) for x in (*widths, HEADS, HEADS)]
    vectors = [random(HEADS), random(HEADS)]
    assert run(of_inputs(), values, vectors, states=[STATES[1].clone()]) is not None
    for place in range(3):
        columns = [x + (i == place) for i, x in enumerate(COLUMNS)]
        state = STATES[1].clone()
        assert run(of_inputs(tuple(columns)), values, vectors, states=[state]) is None
        assert state.equal(STATES[1])


CONVOLVE = {"x": 0, "weight": 0, "bias": -1, "activation": None}
NAMES = ("columns", "gates", "vectors", "eps", "heads", "kv_heads", "head_dim", "value_dim")
ATTENTION = {"inputs": (0, 0, 0), **dict(zip(NAMES, (COLUMNS, (0, 0), (0, 1), EPS, *SIZES)))}


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("convolve", {"x": -1}, "there is no value -1"),
        ("convolve", {"x": 1}, "there is no value 1"),
        ("convolve", {"weight": -1}, "there is no vector -1"),
        ("convolve", {"bias": -2}, "there is no vector -2"),
        ("convolve", {"activation": "sil"}, "activation is 'sil'"),
        *[
            ("linear_attention", {"inputs": tuple(y if i == place else 0 for i in range(3))}, f"value {y}")
            for place in range(3)
            for y in (-1, 1)
        ],
        *[("linear_attention", {"gates": x}, "value -1") for x in ((-1, 0), (0, -1))],
        *[("linear_attention", {"gates": x}, "value 1") for x in ((1, 0), (0, 1))],
        *[("linear_attention", {"vectors": x}, "there is no vector -1") for x in ((-1, 0), (0, -1))],
        *[("linear_attention", {x: 0}, "a size is 0") for x in NAMES[4:]],
        *[("linear_attention", {x: -1}, "a size is -1") for x in NAMES[4:]],
        *[("linear_attention", {x: 2**40}, "a size is 1099511627776") for x in NAMES[4:]],
        *[
            ("linear_attention", {x: 513}, "a head has 513 elements, at most 512 are possible")
            for x in NAMES[6:]
        ],
        ("linear_attention", {"heads": 5}, "5 heads are no multiple of 2"),
        *[
            ("linear_attention", {"columns": x}, "a column is -1")
            for x in ((-1, 0, 0), (0, -1, 0), (0, 0, -1))
        ],
        ("linear_attention", {"columns": (0, 0, 2**40)}, "a column is 1099511627776"),
    ],
)
def test_errors(name, change, message):
    refuses({"convolve": CONVOLVE, "linear_attention": ATTENTION}[name], name, change, message)


def read_only(x):
    x = x.numpy().copy()
    x.setflags(write=False)
    return x


@pytest.mark.parametrize(
    ("states", "threads", "message"),
    [
        ([], 1, "there are 0 states, wanted: 2"),
        ([None, None, None], 1, "there are 3 states, wanted: 2"),
        ([STATES[0], STATES[1].double()], 1, "states has type torch.Tensor, dtype torch.float64"),
        ([STATES[0], "state"], 1, "states has type str"),
        ([STATES[0], read_only(STATES[1])], 1, "states.* read-only"),
        ([read_only(STATES[0]), STATES[1]], 1, "states.* read-only"),
        ([STATES[0], STATES[1].clone().requires_grad_()], 1, "states requires a gradient"),
        ([*STATES], -1, "num_threads is -1"),
    ],
)
def test_runs_that_are_refused(states, threads, message):
    """They write no state."""
    before = copied(STATES)
    with pytest.raises((ValueError, TypeError, RuntimeError), match=f"RowProgram.run: .*{message}"):
        run(small(), VALUES, VECTORS, threads=threads, states=states)
    assert all_equal(STATES, before)
