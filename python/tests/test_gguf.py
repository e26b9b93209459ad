"""GgufFile: files that PyPI's gguf writes, with the elements, numbers and metadata that it reads."""

import copy
import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import gguf
import headlane
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from stored import check_stored, same_bits, split_blocks

models = pytest.importorskip("headlane.models", reason="headlane was built without its models")
RNG = np.random.default_rng(0)
OUT, IN = 40, 512
X = RNG.standard_normal((OUT, IN), np.float32)
# The types of matrices, and how each is packed.
STORED = {
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "Q8_0": "int8_group32",
    "Q4_0": "int4_group32",
    "Q4_K": "int8_group32",
    "Q6_K": "int8_group32",
}
# The bytes of a block that are scales of float16; gguf does not quantise to these types.
SCALES = {"Q4_K": (0, 1, 2, 3), "Q6_K": (208, 209)}


def random_blocks(kind):
    """Blocks of random bits, with scales that are finite."""
    elements, size = gguf.GGML_QUANT_SIZES[Type[kind]]
    blocks = RNG.integers(0, 256, (OUT, IN // elements, size), np.uint8)
    places = SCALES[kind]
    scales = RNG.standard_normal((OUT, IN // elements, len(places) // 2)).astype(np.float16)
    blocks[..., places] = scales.view(np.uint8)
    return blocks.reshape(OUT, -1)


BLOCKS = {
    kind: random_blocks(kind) if kind in SCALES else gguf.quants.quantize(X, Type[kind]) for kind in STORED
}
METADATA = {
    "general.name": ("a tiny model", gguf.GGUFValueType.STRING),
    "text": ("é 猫 \0", gguf.GGUFValueType.STRING),
    "flag": (True, gguf.GGUFValueType.BOOL),
    "u8": (255, gguf.GGUFValueType.UINT8),
    "i8": (-128, gguf.GGUFValueType.INT8),
    "u16": (65535, gguf.GGUFValueType.UINT16),
    "i16": (-32768, gguf.GGUFValueType.INT16),
    "u32": (2**32 - 1, gguf.GGUFValueType.UINT32),
    "i32": (-(2**31), gguf.GGUFValueType.INT32),
    "u64": (2**63 - 1, gguf.GGUFValueType.UINT64),
    "i64": (-(2**63), gguf.GGUFValueType.INT64),
    "f32": (0.1, gguf.GGUFValueType.FLOAT32),
    "f64": (0.1, gguf.GGUFValueType.FLOAT64),
    "integers": ([1, -2, 3], gguf.GGUFValueType.ARRAY),
    "floats": ([0.5, -1.5], gguf.GGUFValueType.ARRAY),
    "flags": ([True, False], gguf.GGUFValueType.ARRAY),
    "texts": (["a", "", "é"], gguf.GGUFValueType.ARRAY),
}


def write(path, tensors=(), metadata=()):
    """tensors: name -> (elements or blocks, type)."""
    writer = gguf.GGUFWriter(path, "test")
    for key, (value, kind) in dict(metadata).items():
        writer.add_key_value(key, value, kind)
    for name, (elements, kind) in dict(tensors).items():
        writer.add_tensor(name, elements, raw_dtype=Type[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    tensors = {kind: (blocks, kind) for kind, blocks in BLOCKS.items()}
    tensors["vector"] = X[0], "F32"
    tensors["four axes"] = X.reshape(2, 4, 5, IN), "F32"
    return write(tmp_path_factory.mktemp("gguf") / "x.gguf", tensors, METADATA)


@pytest.fixture(scope="module")
def file(path):
    return models.GgufFile(path)


def test_names_shapes_and_types(file, path):
    reader = gguf.GGUFReader(path)
    assert file.names() == sorted(tensor.name for tensor in reader.tensors)
    for tensor in reader.tensors:
        assert file.shape(tensor.name) == tuple(int(size) for size in reversed(tensor.shape))
        assert file.type(tensor.name) == tensor.tensor_type.name
        assert file.contains(tensor.name)
        assert tensor.name in file
    assert "none" not in file
    assert file.file == str(path)
    assert repr(file) == f"GgufFile({str(path)!r}: {len(file.names())} tensors)"


def test_metadata(file, path):
    fields = gguf.GGUFReader(path).fields
    keys = [key for key in fields if not key.startswith("GGUF.")]  # those of the header
    assert file.keys() == sorted(keys)
    for key in keys:
        theirs = fields[key].contents()
        ours = file.metadata(key)
        assert ours == theirs
        assert type(ours) is type(METADATA.get(key, ("",))[0])
    assert file.metadata("none") is None
    assert file.metadata("f32") == float(np.float32(0.1))
    assert all(type(x) is bool for x in file.metadata("flags"))


@pytest.mark.parametrize("kind", STORED)
def test_elements(file, kind):
    """The bytes that PyPI's gguf returns."""
    expected = gguf.quants.dequantize(BLOCKS[kind], Type[kind])
    loaded = file.load(kind)
    same_bits(loaded, expected)
    same_bits(file.load(kind, (OUT, IN)), expected)
    loaded[:] = 0  # in memory of its own
    same_bits(file.load(kind), expected)


def test_axes(file):
    same_bits(file.load("vector"), X[0])
    same_bits(file.load("vector", [IN]), X[0])
    same_bits(file.load("four axes"), X.reshape(2, 4, 5, IN))


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
def test_numbers_and_scales_are_those_of_the_file(file, kind):
    numbers, scales = split_blocks(BLOCKS[kind], kind)
    assert len(np.unique(numbers)) > 15
    for threads in (None, 0, 1, 3):
        check_stored(file.pack(kind, num_threads=threads), numbers.T, scales.T, STORED[kind])


@pytest.mark.parametrize("kind", STORED)
def test_packed_weights(file, kind):
    packed = file.pack(kind)
    assert type(packed) is headlane.PackedMatrix
    assert (packed.dtype, packed.shape) == (STORED[kind], (IN, OUT))
    exact = file.load(kind)
    if kind in SCALES:  # anew
        anew = headlane.PackedMatrix(exact.T, dtype="int8_group32")
        for ours, theirs in zip(packed.unpack_numbers(), anew.unpack_numbers()):
            same_bits(ours, theirs)
    else:
        same_bits(packed.decoded().T, exact)
    x = RNG.standard_normal((3, IN), np.float32)
    same_bits(headlane.linear(x, packed), headlane.matmul(x, packed.decoded()))
    for dtype in ("float32", "bfloat16", "int8", "int4_group32"):
        other = file.pack(kind, dtype=dtype)
        assert other.dtype == dtype
        if dtype != STORED[kind]:
            same_bits(other.decoded(), headlane.PackedMatrix(exact.T, dtype=dtype).decoded())


def test_a_number_of_minus_128(tmp_path):
    blocks = BLOCKS["Q8_0"].copy()
    blocks[3, 34 * 2 + 2 + 5] = 128
    file = models.GgufFile(write(tmp_path / "x.gguf", {"w": (blocks, "Q8_0")}))
    assert file.load("w")[3, 69] == -128 * split_blocks(blocks, "Q8_0")[1][3, 2].astype(np.float32)
    with pytest.raises(
        models.CheckpointError, match=r"x.gguf: tensor 'w': .*numbers\[69, 3\] is -128; int8_group32"
    ):
        file.pack("w")
    numbers, scales = split_blocks(blocks, "Q8_0")
    check_stored(file.pack("w", clamp=True), np.clip(numbers, -127, 127).T, scales.T, "int8_group32")


def test_text_that_is_no_unicode(tmp_path):
    text = b"a\xff\xe9"
    path = write(tmp_path / "x.gguf", metadata={"text": (text, gguf.GGUFValueType.STRING)})
    assert models.GgufFile(path).metadata("text").encode("utf-8", "surrogateescape") == text


def test_copies_pickles_and_threads(file, path, monkeypatch):
    assert copy.copy(file) is copy.deepcopy(file) is file
    monkeypatch.chdir(path.parent)
    other = models.GgufFile(path.name)
    monkeypatch.chdir("/")
    for one in (other, pickle.loads(pickle.dumps(other))):
        assert one.file == str(path)
        assert one.names() == file.names()
    with ThreadPoolExecutor(4) as pool:
        loaded = list(pool.map(file.load, ["Q6_K"] * 20))
    assert {x.tobytes() for x in loaded} == {file.load("Q6_K").tobytes()}


def test_memory_outlives_the_file(path):
    file = models.GgufFile(path)
    x, packed = file.load("F32"), file.pack("F32")
    del file
    same_bits(x, X)
    same_bits(packed.unpack(), X.T)


def test_files_that_are_refused(tmp_path):
    error = models.CheckpointError
    for wrong in (3, None, ["a"]):
        with pytest.raises(
            TypeError, match=f"GgufFile: file has type {type(wrong).__name__}; wanted: str or os"
        ):
            models.GgufFile(wrong)
    with pytest.raises(ValueError, match="GgufFile: file is .*which has a NUL"):
        models.GgufFile("a\0b")
    with pytest.raises(ValueError, match="GgufFile: file is .*which can be no file's name"):
        models.GgufFile("\ud800")
    with pytest.raises(error, match="none.gguf: cannot be opened: No such file or directory"):
        models.GgufFile(tmp_path / "none.gguf")
    with pytest.raises(error, match="is not a regular file"):
        models.GgufFile(tmp_path)
    with pytest.raises(error, match=r"/\\xff\\xfe: cannot be opened"):  # a name that is no Unicode text
        models.GgufFile(os.fsencode(tmp_path) + b"/\xff\xfe")
    whole = write(tmp_path / "x.gguf", {"w": (X, "F32")}).read_bytes()
    (tmp_path / "short.gguf").write_bytes(whole[:-1])
    with pytest.raises(error, match="short.gguf: tensor 'w': "):
        models.GgufFile(tmp_path / "short.gguf")


def test_calls_that_are_refused(file, tmp_path):
    error = models.CheckpointError
    for method in (file.contains, file.shape, file.type, file.load, file.pack, file.metadata):
        name = f"GgufFile.{method.__name__}: {'key' if method == file.metadata else 'name'}"
        for wrong in (3, None, b"F32", ["F32"]):
            with pytest.raises(TypeError, match=f"^{name} is .*; wanted: a str"):
                method(wrong)
        with pytest.raises(ValueError, match=f"^{name} is .*no Unicode text"):
            method("\ud800")
    for method in (file.shape, file.type, file.load, file.pack):
        with pytest.raises(error, match="x.gguf: there is no tensor 'none'"):
            method("none")
    with pytest.raises(error, match=r"tensor 'F32': has the shape \[40, 512\], \[512, 40\] is expected"):
        file.load("F32", (512, 40))
    with pytest.raises(TypeError, match=r"GgufFile.load: shape\[1\] is 5.0; wanted: an integer"):
        file.load("F32", (512, 5.0))
    with pytest.raises(error, match=r"tensor 'vector': has the shape \[512\], a matrix is expected"):
        file.pack("vector")
    with pytest.raises(ValueError, match="GgufFile.pack: dtype is 'Q8_0'; there are float32, bfloat16"):
        file.pack("F32", dtype="Q8_0")
    with pytest.raises(TypeError, match="GgufFile.pack: dtype is 8; wanted: a str"):
        file.pack("F32", dtype=8)
    with pytest.raises(TypeError, match="GgufFile.pack: clamp is 1; wanted: True or False"):
        file.pack("F32", clamp=1)
    with pytest.raises(ValueError, match="GgufFile.pack: num_threads is -1, the minimum is 0"):
        file.pack("F32", num_threads=-1)
    path = write(tmp_path / "y.gguf", {"q": (gguf.quants.quantize(X, Type.Q5_0), "Q5_0")})
    with pytest.raises(error, match="tensor 'q': is of Q5_0, only F32, F16, BF16, Q8_0, Q4_0, Q4_K and Q6_K"):
        models.GgufFile(path).load("q")
    path = write(tmp_path / "z.gguf", metadata={"large": (2**63, gguf.GGUFValueType.UINT64)})
    with pytest.raises(error, match="z.gguf: key 'large': "):
        models.GgufFile(path).metadata("large")
    empty = models.GgufFile.__new__(models.GgufFile)
    with pytest.raises(AttributeError):
        empty.names()
