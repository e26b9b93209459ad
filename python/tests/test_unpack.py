"""PackedMatrix.unpack and unpack_columns: into arrays of any type and layout."""

import headlane
import layouts
import numpy as np
import pytest
from exporter import Exporter
from half import HALVES, KINDS, TENSORS, assert_rounded_once, wide
from hypothesis import given
from hypothesis import strategies as st

RNG = np.random.default_rng(0)
PackedMatrix = headlane.PackedMatrix
DTYPES = ["float32", "bfloat16", "float16", "int8", "int8_group32", "int4_group32"]
W = RNG.standard_normal((40, 70), np.float32)
PACKED = {dtype: PackedMatrix(W, dtype=dtype) for dtype in DTYPES}
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_values(dtype):
    """Those that products read, which test_linear and test_from_numbers check."""
    unit = np.eye(40, dtype=np.float32)
    np.testing.assert_array_equal(PACKED[dtype].unpack(), headlane.linear(unit, PACKED[dtype]))
    assert PACKED[dtype].decoded().tobytes() == PACKED[dtype].unpack(num_threads=2).tobytes()


@given(data=st.data())
def test_unpack(data):
    packed = PACKED[data.draw(st.sampled_from(DTYPES))]
    expected = packed.unpack()
    out = data.draw(layouts.outputs(expected.shape))
    result = packed.unpack(out, num_threads=data.draw(st.sampled_from([None, 0, 1, 3])))
    assert out is None or result is out
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("kind", HALVES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rounded_once(dtype, kind):
    """And nothing beside the elements is written."""
    packed = PACKED[dtype]
    ids = np.array([[3, 69, 3], [0, 31, 32]])
    for layout in layouts.OUTPUT_LAYOUTS:
        if kind in TENSORS and layout == "reversed":
            continue  # PyTorch has no negative strides
        for exact, call in (
            (packed.unpack(), packed.unpack),
            (packed.unpack_columns(ids), lambda out, p=packed: p.unpack_columns(ids, out)),
        ):
            out = target = HALVES[kind](layouts.arranged(np.full(exact.shape, 77, np.float32), layout))
            assert call(out) is target
            assert_rounded_once(out, exact, kind)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_weight_of_a_layer_of_pytorch(dtype, name):
    """A transposed view of a parameter: its version counts the write."""
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(40, 70, dtype=getattr(torch, name))
    before = layer.weight._version
    with torch.no_grad():
        PACKED[dtype].unpack(layer.weight.T)
    assert layer.weight._version > before
    expected = torch.from_numpy(PACKED[dtype].unpack().T).to(layer.weight.dtype)
    assert torch.equal(layer.weight, expected)


@given(data=st.data())
def test_unpack_columns(data):
    packed = PACKED[data.draw(st.sampled_from(DTYPES))]
    shape = tuple(data.draw(st.lists(st.sampled_from([0, 1, 2, 3, 7]), max_size=4)))
    columns = RNG.integers(0, 70, shape).astype(data.draw(st.sampled_from(INTEGERS)))
    if columns.ndim:
        columns = layouts.arranged(columns, data.draw(st.sampled_from(layouts.LAYOUTS)))
    expected = packed.unpack().T[columns.astype(np.int64)]
    assert expected.shape == (*shape, 40)
    out = data.draw(st.none() | layouts.shuffled(expected.shape, broadcast=False))
    result = packed.unpack_columns(columns, out, num_threads=data.draw(st.sampled_from([None, 0, 1, 3])))
    assert out is None or result is out
    assert type(result) is np.ndarray
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, expected)


def test_kinds_of_columns():
    packed = PACKED["int8"]
    expected = packed.unpack().T
    for columns in (5, np.int32(5), [5], [[5, 69], [0, 0]], (1, 2), range(3), np.arange(70), []):
        same = expected[np.array(columns, np.int64)]
        np.testing.assert_array_equal(packed.unpack_columns(columns), same)
    exported = packed.unpack_columns(memoryview(np.array([1, 2])))
    np.testing.assert_array_equal(exported, expected[[1, 2]])


@pytest.mark.parametrize("name", ["int32", "int64", "uint8"])
def test_tensors_of_columns(name):
    """A NumPy array unless there is out, as Embedding.forward() of ids."""
    torch = pytest.importorskip("torch")
    packed, state = PACKED["float16"], {"weight": PACKED["float16"]}
    ids = torch.tensor([[1, 69], [3, 3]], dtype=getattr(torch, name))
    embedding = headlane.Embedding(state, tied=True)
    own, theirs = packed.unpack_columns(ids), embedding.forward(ids)
    assert type(own) is type(theirs) is np.ndarray
    assert own.tobytes() == theirs.tobytes()
    out = torch.empty(2, 2, 40)
    assert packed.unpack_columns(ids.T, out.transpose(0, 1)) is not None
    assert out.numpy().tobytes() == own.tobytes()


def test_out_of_other_libraries():
    out = np.zeros((40, 70), np.float32)
    PACKED["int8"].unpack(Exporter(out))
    np.testing.assert_array_equal(out, PACKED["int8"].unpack())


def test_columns_that_are_a_part_of_out():
    """Read before anything is written."""
    memory = np.zeros(2 * 40 + 8, np.float32)
    columns = memory[:4].view(np.int64)
    columns[:] = 5, 6
    out = memory[:80].reshape(2, 40)
    np.testing.assert_array_equal(
        PACKED["int8"].unpack_columns(columns, out), PACKED["int8"].unpack().T[[5, 6]]
    )


@pytest.mark.parametrize("shape", [(0, 0), (3, 0), (0, 5)])
def test_matrices_without_elements(shape):
    packed = PackedMatrix(np.zeros(shape, np.float32))
    out = np.zeros(shape, np.float32)
    assert packed.unpack(out) is out
    assert packed.unpack_columns([]).shape == (0, shape[0])
    if shape[1]:
        assert packed.unpack_columns([[1, 4]]).shape == (1, 2, 0)


def columns_of(*arguments, **options):
    return lambda out: PACKED["int8"].unpack_columns(*arguments, **options)


ROWS = np.zeros((4, 40), np.float32)
REFUSED = {
    "too large": (columns_of([1, 70]), ValueError, r"columns\[1\] is 70, the matrix has 70 columns"),
    "negative": (columns_of([[1], [-1]]), ValueError, r"columns\[1, 0\] is -1, the matrix has 70 columns"),
    "one": (columns_of(70), ValueError, "columns is 70, the matrix has 70 columns"),
    "none": (columns_of(None), TypeError, "columns has dtype object; wanted: integers"),
    "floats": (columns_of([1.0]), TypeError, "columns has dtype float64; wanted: integers"),
    "bool": (columns_of([True]), TypeError, "columns has dtype bool; wanted: integers"),
    "text": (columns_of("1"), TypeError, "columns has dtype <U1; wanted: integers"),
    "axes": (columns_of(np.zeros((1,) * 9, int)), ValueError, "columns has 9 axes, at most 8"),
    "axes of out": (columns_of(np.zeros((1,) * 8, int)), ValueError, "out has 9 axes, at most 8"),
    "shape": (columns_of([1, 2, 3], ROWS), ValueError, r"out has shape \[4, 40\], the result \[3, 40\]"),
    "overlap": (
        columns_of([1, 2, 3, 4], np.broadcast_to(ROWS[0], (4, 40))),
        ValueError,
        "out is read-only|out .*overlaps itself",
    ),
    "overlap across axes": (
        columns_of(
            np.zeros((2, 2), int), np.lib.stride_tricks.as_strided(ROWS.copy(), (2, 2, 40), (160, 80, 4))
        ),
        ValueError,
        "out .*overlaps itself",
    ),
    "float64": (columns_of([1], ROWS[:1].astype(float)), TypeError, "out .*float64; wanted: float32"),
    "threads": (columns_of([1], num_threads=-1), ValueError, "num_threads is -1, the minimum is 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    call, exception, message = REFUSED[name]
    with pytest.raises(exception, match="^PackedMatrix.unpack_columns: " + message):
        call(None)
    assert not ROWS.any()


def test_unpack_refused():
    for out, exception, message in (
        (ROWS, ValueError, r"out has shape \[4, 40\], the result \[40, 70\]"),
        (np.zeros((40, 70)), TypeError, "out has type ndarray, dtype float64; wanted: float32"),
        (np.broadcast_to(np.float32(0), (40, 70)), ValueError, "out is read-only"),
        (np.lib.stride_tricks.as_strided(W.copy(), (40, 70), (4, 4)), ValueError, "out .*overlaps itself"),
        ([[1.0]], TypeError, "out has type list; wanted: an array"),
    ):
        with pytest.raises(exception, match="^PackedMatrix.unpack: " + message):
            PACKED["float32"].unpack(out)


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "float32"])
def test_halves_that_overlap_themselves(kind):
    memory = KINDS[kind](np.zeros((4, 40), np.float32))
    out = np.lib.stride_tricks.as_strided(memory, (2, 2, 40), (80, 40, 2))
    with pytest.raises(ValueError, match="out .*overlaps itself"):
        PACKED["int8"].unpack_columns([[1, 2], [3, 4]], out)
    assert not wide(memory).any()
