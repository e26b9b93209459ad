"""PackedMatrix.packed_bytes and from_bytes: the memory of a matrix, as a file would hold it."""

import gc
import mmap
import weakref
from concurrent.futures import ThreadPoolExecutor

import headlane
import numpy as np
import pytest

RNG = np.random.default_rng(0)
PackedMatrix = headlane.PackedMatrix
DTYPES = ["float32", "bfloat16", "float16", "int8", "int8_group32", "int4_group32"]
SHAPES = [(0, 0), (0, 3), (5, 0), (1, 1), (31, 2), (32, 33), (33, 32), (70, 65), (600, 40)]


def matrix(shape=(40, 70), dtype="int8"):
    return PackedMatrix(RNG.standard_normal(shape, np.float32), dtype=dtype)


def check_same(one, other):
    assert type(one) is PackedMatrix
    assert (one.shape, one.dtype, one.nbytes) == (other.shape, other.dtype, other.nbytes)
    assert one.packed_bytes().tobytes() == other.packed_bytes().tobytes()
    assert one.unpack().tobytes() == other.unpack().tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_round_trip(shape, dtype):
    packed = matrix(shape, dtype)
    memory = packed.packed_bytes()
    assert (memory.dtype, memory.shape) == (np.uint8, (packed.nbytes,))
    copy = PackedMatrix.from_bytes(memory, packed.shape, packed.dtype)
    check_same(copy, packed)
    assert not np.shares_memory(copy.packed_bytes(), memory)
    x = RNG.standard_normal((3, shape[0]), np.float32)
    assert headlane.linear(x, copy).tobytes() == headlane.linear(x, packed).tobytes()


def test_the_same_matrix_has_the_same_bytes():
    """Also behind its last column, where memory was used before."""
    b = RNG.standard_normal((300, 33), np.float32)
    for dtype in DTYPES:
        first = PackedMatrix(b, dtype=dtype).packed_bytes().tobytes()
        matrix((300, 64), dtype)
        assert PackedMatrix(b, dtype=dtype).packed_bytes().tobytes() == first


def test_layout():
    assert PackedMatrix.layout == matrix().layout == 1
    with pytest.raises(AttributeError):
        matrix().layout = 2


def test_the_array_shares_memory_and_keeps_the_matrix():
    packed = matrix()
    memory, again = packed.packed_bytes(), packed.packed_bytes()
    assert memory.ctypes.data == again.ctypes.data
    before, freed = memory.tobytes(), weakref.ref(packed)
    del packed, again
    gc.collect()
    assert freed() is not None
    assert memory.tobytes() == before
    part = memory[100:]
    del memory
    assert part.tobytes() == before[100:]
    del part
    gc.collect()
    assert freed() is None


def test_the_array_is_read_only():
    memory = matrix().packed_bytes()
    assert not memory.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        memory[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        memory.setflags(write=True)


def test_weak_references():
    packed = matrix()
    table = weakref.WeakKeyDictionary({packed: 1})
    dead = []
    weakref.finalize(packed, dead.append, 1)
    assert len(table) == 1
    del packed
    gc.collect()
    assert (len(table), dead) == (0, [1])


def test_kinds(tmp_path):
    packed = matrix()
    memory = packed.packed_bytes()
    file = tmp_path / "packed"
    file.write_bytes(b"head" + memory.tobytes())
    with file.open("rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        with memoryview(mapped) as view:
            check_same(PackedMatrix.from_bytes(view[4:], packed.shape, packed.dtype), packed)
        with pytest.raises(ValueError, match="bytes has"):
            PackedMatrix.from_bytes(mapped, packed.shape, packed.dtype)
    kinds = [bytes, bytearray, memoryview, np.array, lambda x: np.frombuffer(bytes(x), np.uint8)]
    kinds.append(lambda x: np.memmap(file, np.uint8, "r", offset=4))
    for kind in kinds:
        check_same(PackedMatrix.from_bytes(kind(memory), packed.shape, packed.dtype), packed)
    for shape in ([40, 70], np.array([40, 70]), (np.int64(40), 70)):
        check_same(PackedMatrix.from_bytes(memory, shape, packed.dtype), packed)


def test_tensors():
    torch = pytest.importorskip("torch")
    packed = matrix()
    tensor = torch.from_numpy(packed.packed_bytes().copy())
    check_same(PackedMatrix.from_bytes(tensor, torch.Size(packed.shape), packed.dtype), packed)
    with pytest.raises(ValueError, match="bytes has a stride of 2; wanted: adjacent bytes"):
        PackedMatrix.from_bytes(tensor[::2], packed.shape, packed.dtype)


def test_several_threads():
    packed = matrix((600, 300))
    memory = packed.packed_bytes()
    with ThreadPoolExecutor(4) as pool:
        for copy in pool.map(
            lambda _: PackedMatrix.from_bytes(memory, packed.shape, packed.dtype), range(20)
        ):
            check_same(copy, packed)


BYTES = matrix().packed_bytes().copy()


def with_bytes(dtype, where, value):
    """Of a matrix [5, 3] of this type."""
    memory = matrix((5, 3), dtype).packed_bytes().copy()
    memory[where : where + len(value)] = list(value)
    return lambda: PackedMatrix.from_bytes(memory, (5, 3), dtype)


def of(*arguments):
    return lambda: PackedMatrix.from_bytes(*arguments)


REFUSED = {
    "size": (
        of(BYTES[:-1], (40, 70), "int8"),
        ValueError,
        f"bytes has {len(BYTES) - 1} bytes, a matrix of 40 x 70 of int8 has {len(BYTES)}",
    ),
    "type": (of(BYTES, (40, 70), "float32"), ValueError, "bytes has .* of float32 has 15360"),
    "no type": (of(BYTES, (40, 70), "int4"), ValueError, "dtype is 'int4'; there are float32, bfloat16"),
    "type of dtype": (of(BYTES, (40, 70), np.int8), TypeError, "dtype is .*; wanted: a str"),
    "one size": (of(BYTES, (40,), "int8"), ValueError, r"shape is \[40\]; wanted: rows and columns"),
    "an integer": (of(BYTES, 40, "int8"), ValueError, r"shape is \[40\]; wanted: rows and columns"),
    "negative": (of(BYTES, (-40, 70), "int8"), ValueError, "rows is -40, the minimum is 0"),
    "negative columns": (of(BYTES, (40, -70), "int8"), ValueError, "columns is -70, the minimum is 0"),
    "overflow": (of(BYTES, (2**60, 70), "int8"), ValueError, "a matrix of 1152921504606846976 x 70 does not"),
    "list": (
        of(list(BYTES), (40, 70), "int8"),
        TypeError,
        "bytes has type list; wanted: an object with the buffer protocol, or an array of uint8",
    ),
    "None": (of(None, (40, 70), "int8"), TypeError, "bytes has type NoneType; wanted: an object with the"),
    "text": (of("a", (40, 70), "int8"), TypeError, "bytes has type str; wanted: an object with the buffer"),
    "int8": (of(BYTES.view(np.int8), (40, 70), "int8"), TypeError, "bytes .*int8; wanted: uint8"),
    "axes": (of(BYTES[None], (40, 70), "int8"), ValueError, r"bytes has shape \[1, .*\]; wanted: one axis"),
    "stride": (of(BYTES[::-1], (40, 70), "int8"), ValueError, "bytes has a stride of -1; wanted: adjacent"),
    "memoryview": (
        of(memoryview(bytes(8))[::2], (40, 70), "int8"),
        TypeError,
        "bytes has type memoryview; wanted: adjacent bytes",
    ),
    "-128": (with_bytes("int8", 4 * 1 + 2, b"\x80"), ValueError, r"the number \[2, 1\] is -128; int8 has"),
    "inf": (
        with_bytes("int8", 2 * 128 + 4, b"\x00\x00\x80\x7f"),
        ValueError,
        r"the scale \[1\] is inf; 127 times a scale must be finite",
    ),
    "NaN": (
        with_bytes("int4_group32", 512 + 2, b"\x01\x7e"),
        ValueError,
        r"the scale \[0, 1\] is nan; a scale must be finite",
    ),
    "rest": (
        with_bytes("bfloat16", 2 * 128 + 2, b"\x80\x3f"),
        ValueError,
        r"the element \[5, 0\] is not 0, and behind the last row",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    call, exception, message = REFUSED[name]
    with pytest.raises(exception, match="^PackedMatrix.from_bytes: " + message):
        call()
