"""_core.RowProgram: what does not fit Mamba-2, of which a run writes no state, and what is refused."""

import pytest
from headlane import _core

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from row_programs import NO_LIMITS, TYPES, random, refuses, run, scanned  # noqa: E402
from test_row_program_recurrent import copied  # noqa: E402
from test_row_program_scan import CHANNELS, COLUMNS, DIM, GROUPS, HEADS, SIZES, STATE_SIZE  # noqa: E402
from test_row_program_states import others_of, result_of  # noqa: E402

GIVEN = {
    "values": [random(2, 3, width, seed=width) for width in (CHANNELS, HEADS)],
    "vectors": [random(HEADS, seed=seed) for seed in (1, 2, 3)],
    "states": [random(2, HEADS, DIM, STATE_SIZE, seed=4)],
}
STATE, NO_STATE = GIVEN["states"][0], {("states", 0): None}


def scan(columns=COLUMNS):
    program = _core.RowProgram(2)
    program.add_output(program.scan((0, 0, 0), columns, 1, (0, 1, 2), NO_LIMITS, *SIZES))
    return program


def result(change=(), program=scan, **others):
    return result_of(change, program, **{**GIVEN, **others})


def of_width(width):
    return random(2, 3, width)


FIT = {
    "as it is": {},
    "no D": {("vectors", 2): None},
    "no state": NO_STATE,
    "columns that are not read": {("values", 0): of_width(CHANNELS + 3)},
    "a state whose axes are exchanged in memory": {("states", 0): STATE.mT.contiguous().mT},
}


@pytest.mark.parametrize("name", FIT)
def test_what_fits(name):
    (made,) = result(FIT[name])
    assert made.shape == (2, 3, HEADS * DIM)


@pytest.mark.parametrize("kind", GIVEN)
def test_other_sizes(kind):
    for place, one in enumerate(GIVEN[kind]):
        for other in others_of(one):
            is_wider = kind == "values" and other.shape == (2, 3, CHANNELS + 1)
            assert (result({(kind, place): other}) is not None) is is_wider
            if kind != "states":
                assert (result({(kind, place): other, **NO_STATE}) is not None) is is_wider


@pytest.mark.parametrize(
    "change",
    [
        {("vectors", 0): None},
        {("vectors", 1): None},
        *[{("vectors", place): random(size)} for place in range(3) for size in (1, GROUPS, HEADS * DIM)],
        *[{("vectors", place): random(HEADS * STATE_SIZE)} for place in range(3)],
        # A decay for each row of the state, which the delta rule may have.
        {("values", 1): of_width(HEADS * STATE_SIZE)},
        {("values", 1): of_width(HEADS * STATE_SIZE), ("vectors", 1): random(HEADS * STATE_SIZE)},
        {("values", 1): of_width(HEADS * DIM)},
        {("values", 1): of_width(1)},
        {("values", 1): of_width(HEADS).half()},
        {("values", 0): of_width(CHANNELS).transpose(0, 1).contiguous().transpose(0, 1)},
        {("states", 0): random(2, HEADS, STATE_SIZE, DIM)},  # as the package's function has it
        {("states", 0): STATE[:1]},  # would be repeated
        {("states", 0): STATE[:, :GROUPS]},
        {("states", 0): STATE[0]},
        {("states", 0): STATE.bfloat16()},
        {("states", 0): STATE.half()},
    ],
)
def test_what_does_not_fit(change):
    assert result(change) is None
    if change.keys().isdisjoint(NO_STATE):
        assert result({**change, **NO_STATE}) is None


@pytest.mark.parametrize("axis", range(4))
def test_numbers_that_share_memory(axis):
    """A clone of such a state would have memory for each of them."""
    one = STATE.narrow(axis, 0, 1).clone()
    states = [one.expand_as(STATE)]
    assert states[0].stride(axis) == 0
    assert run(scan(), GIVEN["values"], GIVEN["vectors"], states=states) is None
    assert one.equal(STATE.narrow(axis, 0, 1))


@pytest.mark.parametrize("dtype", TYPES[1:])
def test_types(dtype):
    """The state is of float32 beside values of 16 bits, too."""
    values = [x.to(dtype) for x in GIVEN["values"]]
    assert result(values=values)[0].dtype == dtype
    assert result(values=values, states=[STATE.to(dtype)]) is None
    assert result(values=[values[0], GIVEN["values"][1]]) is None


def test_vectors_in_another_order():
    """Of other types, too; they are read in each run."""
    vectors = [x.bfloat16().float() for x in GIVEN["vectors"]]
    expected = result(vectors=vectors)[0]
    assert not expected.equal(result()[0])
    strided = [torch.stack((x, -x), -1)[..., 0] for x in vectors]
    for same in (strided, [x.bfloat16() for x in vectors], [x.numpy() for x in vectors]):
        assert result(vectors=same)[0].equal(expected)
    for vector in vectors:
        vector.mul_(0.5)
        made = result(vectors=vectors)[0]
        assert not made.equal(expected)
        expected = made
    dt = GIVEN["values"][1]
    assert expected.equal(scanned(GIVEN["values"][:1] * 3, COLUMNS, dt, vectors, SIZES, STATE.clone()))


def test_sequences_are_needed():
    """Of rows, and of more axes, nothing with a state is computed."""
    for shape in ((6,), (2, 3, 1)):
        values = [x.reshape(*shape, -1) for x in GIVEN["values"]]
        assert result(NO_STATE, values=values) is None


@pytest.mark.parametrize("place", range(3))
def test_columns_that_are_not_there(place):
    """Of C, B and x in a value each: one column fewer than are read."""
    program = _core.RowProgram(4)
    program.add_output(program.scan((0, 1, 2), (5, 0, 7), 3, (0, 1, 2), NO_LIMITS, *SIZES))
    widths = [5 + GROUPS * STATE_SIZE, GROUPS * STATE_SIZE, 7 + HEADS * DIM, HEADS]
    others = GIVEN["vectors"], (), 1
    assert run(program, [of_width(x) for x in widths], *others, copied([STATE])) is not None
    widths[place] -= 1
    state = STATE.clone()
    assert run(program, [of_width(x) for x in widths], *others, [state]) is None
    assert state.equal(STATE)


def read_only(x):
    x = x.numpy().copy()
    x.setflags(write=False)
    return x


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ([], "there are 0 states, wanted: 1"),
        ([STATE, STATE], "there are 2 states, wanted: 1"),
        ([STATE.double()], "states has type torch.Tensor, dtype torch.float64"),
        ([read_only(STATE)], "states.* read-only"),
    ],
)
def test_runs_that_are_refused(states, message):
    before = STATE.clone()
    with pytest.raises((ValueError, TypeError), match=f"RowProgram.run: .*{message}"):
        run(scan(), GIVEN["values"], GIVEN["vectors"], states=states)
    assert STATE.equal(before)


NAN = float("nan")
NAMES = ("heads", "groups", "state_size", "head_dim")
SCAN = {
    "inputs": (0, 0, 0),
    "columns": COLUMNS,
    "dt": 0,
    "vectors": (0, 1, -1),
    "limits": NO_LIMITS,
    **dict(zip(NAMES, SIZES)),
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *[
            ({"inputs": tuple(y if i == place else 0 for i in range(3))}, f"there is no value {y}")
            for place in range(3)
            for y in (-1, 1)
        ],
        *[({"dt": x}, f"there is no value {x}") for x in (-1, 1)],
        *[({"vectors": x}, "there is no vector -1") for x in ((-1, 0, 0), (0, -1, 0), (0, -1, -1))],
        ({"vectors": (0, 1, -2)}, "there is no vector -2"),
        *[({name: x}, f"a size is {x}") for name in NAMES for x in (0, -1, 2**40)],
        *[({x: 513}, "a head has 513 elements, at most 512 are possible") for x in NAMES[2:]],
        ({"heads": 5}, "5 heads are no multiple of 2"),
        ({"groups": 8}, "4 heads are no multiple of 8"),
        *[
            ({"limits": x}, "steps from ")
            for x in ((-1.0, 1.0), (1.0, 0.5), (NAN, 1.0), (0.0, NAN), (NO_LIMITS[1],) * 2)
        ],
        *[({"columns": x}, "a column is -1") for x in ((-1, 0, 0), (0, -1, 0), (0, 0, -1))],
        ({"columns": (0, 0, 2**40)}, "a column is 1099511627776"),
    ],
)
def test_errors(change, message):
    refuses(SCAN, "scan", change, message)
