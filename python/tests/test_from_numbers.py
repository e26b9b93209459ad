"""PackedMatrix.from_numbers and unpack_numbers: what a file stores is kept, and nothing is rounded anew."""

import copy
import pickle
import sys

import gguf
import headlane
import numpy as np
import pytest
from exporter import Exporter
from half import HALVES, KINDS, TENSORS, bits, wide
from stored import check_stored, same_bits, split_blocks

RNG = np.random.default_rng(0)
PackedMatrix = headlane.PackedMatrix
LIMITS = {"int8": (-127, 127), "int8_group32": (-127, 127), "int4_group32": (-8, 7)}
SHAPES = [(0, 0), (0, 3), (5, 0), (1, 1), (31, 2), (32, 33), (33, 32), (70, 65), (600, 40)]


def stored(k, n, dtype):
    """Random numbers and scales: with both ends of the range, negative, denormal and zero scales."""
    least, greatest = LIMITS[dtype]
    numbers = RNG.integers(least, greatest + 1, (k, n), np.int8)
    if numbers.size > 1:
        numbers.flat[[0, -1]] = least, greatest
    shape, kind = ((n,), np.float32) if dtype == "int8" else (((k + 31) // 32, n), np.float16)
    scales = RNG.standard_normal(shape).astype(kind)
    odd = np.array([-0.0, np.finfo(kind).smallest_subnormal, np.finfo(kind).max / 128, 0], kind)
    scales.flat[:4] = odd[: scales.size]
    return numbers, scales


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_is_given_is_what_is_stored(shape, dtype):
    numbers, scales = stored(*shape, dtype)
    packed = PackedMatrix.from_numbers(numbers, scales, dtype=dtype)
    check_stored(packed, numbers, scales, dtype)
    assert packed.nbytes == PackedMatrix(np.zeros(shape, np.float32), dtype=dtype).nbytes
    for threads in (0, 1, 3):
        again = PackedMatrix.from_numbers(
            *packed.unpack_numbers(), dtype=packed.dtype, clamp=True, num_threads=threads
        )
        check_stored(again, numbers, scales, dtype)


@pytest.mark.parametrize("dtype", LIMITS)
def test_products(dtype):
    """With the bits of those by the matrix that it decodes to."""
    numbers, scales = stored(200, 70, dtype)
    scales[abs(scales) > 10] = 10  # sums stay finite
    packed = PackedMatrix.from_numbers(numbers, scales, dtype=dtype)
    for rows in (1, 5, 40):
        x = RNG.standard_normal((rows, 200), np.float32)
        same_bits(headlane.linear(x, packed), headlane.matmul(x, packed.decoded()))
    assert np.isfinite(headlane.linear(x, packed, activations="int8")).all()


@pytest.mark.parametrize("dtype", LIMITS)
def test_copies_and_pickles_keep_numbers_and_scales(dtype):
    """Packing the values again would find other scales."""
    numbers, scales = stored(70, 33, dtype)
    packed = PackedMatrix.from_numbers(numbers, scales, dtype=dtype)
    same_elements = PackedMatrix(np.minimum(abs(packed.decoded()), 1000), dtype=dtype)
    assert same_elements.unpack_numbers()[1].tobytes() != abs(scales).tobytes()
    assert copy.copy(packed) is copy.deepcopy(packed) is packed
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        check_stored(pickle.loads(pickle.dumps(packed, protocol)), numbers, scales, dtype)


@pytest.mark.parametrize("dtype", LIMITS)
def test_numbers_of_packed_values(dtype):
    """Those of a matrix that was packed from float32: its numbers times its scales are its elements."""
    packed = PackedMatrix(RNG.standard_normal((70, 33), np.float32), dtype=dtype)
    numbers, scales = packed.unpack_numbers()
    check_stored(packed, numbers, scales, dtype)
    assert len(np.unique(numbers)) > 10
    check_stored(PackedMatrix.from_numbers(numbers, scales, dtype=dtype), numbers, scales, dtype)


@pytest.mark.parametrize(("kind", "dtype"), [("Q8_0", "int8_group32"), ("Q4_0", "int4_group32")])
def test_blocks_of_gguf(kind, dtype):
    """Quantised and dequantised by PyPI's gguf."""
    quantisation = gguf.GGMLQuantizationType[kind]
    blocks = gguf.quants.quantize(RNG.standard_normal((40, 256), np.float32), quantisation)
    numbers, scales = split_blocks(blocks, kind)
    packed = PackedMatrix.from_numbers(numbers.T, scales.T, dtype=dtype)
    check_stored(packed, numbers.T, scales.T, dtype)
    same_bits(packed.decoded().T, gguf.quants.dequantize(blocks, quantisation))


WORDS = np.arange(2**16, dtype=np.uint16)


@pytest.mark.parametrize("kind", HALVES)
def test_every_number_of_16_bits(kind):
    """NaN stays NaN."""
    if kind in TENSORS:
        torch = pytest.importorskip("torch")
        x = torch.from_numpy(WORDS.view(np.int16)).view(getattr(torch, kind[6:])).reshape(256, 256)
    else:
        x = WORDS.view(KINDS[kind](np.zeros(1, np.float32)).dtype).reshape(256, 256)
    packed = PackedMatrix.from_numbers(x, dtype=kind.rpartition(".")[2])
    assert packed.dtype == kind.rpartition(".")[2]
    for matrix in (packed, pickle.loads(pickle.dumps(packed))):
        np.testing.assert_array_equal(bits(matrix.decoded()), bits(wide(x)))


@pytest.mark.parametrize("kind", {**KINDS, **TENSORS})
def test_scales_of_any_type(kind):
    """Those of columns are float32, or widened to it."""
    numbers, _ = stored(40, 33, "int8")
    scales = {**KINDS, **TENSORS}[kind](RNG.standard_normal(33, np.float32))
    packed = PackedMatrix.from_numbers(numbers, scales)
    check_stored(packed, numbers, wide(scales), "int8")


@pytest.mark.parametrize("dtype", LIMITS)
def test_any_strides(dtype):
    numbers, scales = stored(70, 33, dtype)
    for layout in (
        np.asfortranarray,
        lambda x: np.repeat(np.repeat(x, 2, 0), 3, -1)[::2, ..., ::3] if x.ndim > 1 else np.repeat(x, 3)[::3],
        lambda x: x[::-1].copy()[::-1],
        Exporter,
        memoryview,
    ):
        check_stored(
            PackedMatrix.from_numbers(layout(numbers), layout(scales), dtype=dtype), numbers, scales, dtype
        )
    row = np.broadcast_to(numbers[:1], (64, 33))
    one = np.broadcast_to(scales.flat[5], (33,) if dtype == "int8" else (2, 33))  # one scale for all
    packed = PackedMatrix.from_numbers(row, one, dtype=dtype)
    check_stored(packed, row, one, dtype)


@pytest.mark.parametrize("dtype", LIMITS)
def test_tensors(dtype):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    numbers, scales = stored(33, 70, dtype)
    weight = torch.from_numpy(np.ascontiguousarray(numbers.T))  # [out, in]
    packed = PackedMatrix.from_numbers(weight.T, torch.from_numpy(scales), dtype=dtype)
    check_stored(packed, numbers, scales, dtype)
    quantised = torch.quantize_per_tensor(torch.ones(3, 3), 0.1, 0, torch.qint8)
    with pytest.raises(TypeError, match="numbers is quantised: pass numbers.dequantize"):
        PackedMatrix.from_numbers(quantised, torch.ones(3))


def test_numbers_that_a_type_does_not_have():
    for dtype, wrong in (("int8", [-128]), ("int8_group32", [-128]), ("int4_group32", [-128, -9, 8, 127])):
        numbers, scales = stored(70, 33, dtype)
        least, greatest = LIMITS[dtype]
        for number in wrong:
            numbers[45, 7] = number
            words = (
                rf"^PackedMatrix.from_numbers: numbers\[45, 7\] is {number}; {dtype} has {least} … {greatest}"
            )
            with pytest.raises(ValueError, match=words):
                PackedMatrix.from_numbers(numbers, scales, dtype=dtype)
            packed = PackedMatrix.from_numbers(numbers, scales, dtype=dtype, clamp=True)
            check_stored(packed, np.clip(numbers, least, greatest), scales, dtype)


@pytest.mark.parametrize("dtype", LIMITS)
def test_nothing_is_kept(dtype):
    numbers, scales = stored(70, 33, dtype)
    before = sys.getrefcount(numbers), sys.getrefcount(scales)
    packed = PackedMatrix.from_numbers(numbers, scales, dtype=dtype)
    assert (sys.getrefcount(numbers), sys.getrefcount(scales)) == before
    kept = numbers.copy(), scales.copy()
    numbers[:], scales[:] = 1, 1
    check_stored(packed, *kept, dtype)
    packed.unpack_numbers()[0][:] = 0
    check_stored(packed, *kept, dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_matrices_without_numbers_and_scales(dtype):
    packed = PackedMatrix(np.ones((3, 4), np.float32), dtype=dtype)
    words = f"^PackedMatrix.unpack_numbers: the matrix is of {dtype}, it has no numbers and scales"
    with pytest.raises(ValueError, match=words):
        packed.unpack_numbers()
