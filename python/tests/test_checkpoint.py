"""Checkpoint: the tensors of safetensors files, and weights packed as they are stored."""

import copy
import json
import pickle

import calls
import headlane
import numpy as np
import pytest
from stored import check_stored, same_bits

models = pytest.importorskip("headlane.models", reason="headlane was built without its models")
safetensors = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
RNG = np.random.default_rng(0)
X = RNG.standard_normal((5, 70), np.float32)
Q = RNG.integers(-127, 128, (5, 70), np.int8)
TENSORS = {
    "a.weight": X,
    "b.weight": X.astype(np.float16),
    "c.weight": Q,
    "c.weight_scale": RNG.standard_normal((5, 1)).astype(np.float32),
    "d.weight": X[0],
    "e.weight": Q.astype(np.int64),
    "one": np.array(3, np.float32),
    "none": np.zeros((0, 4), np.float32),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoint")
    safetensors.save_file(TENSORS, path / "model.safetensors")
    return path


@pytest.fixture(scope="module")
def checkpoint(folder):
    return models.Checkpoint(folder)


def test_names_and_shapes(checkpoint, folder):
    assert checkpoint.names() == sorted(TENSORS)
    for name, x in TENSORS.items():
        assert checkpoint.shape(name) == x.shape
        assert checkpoint.contains(name)
        assert name in checkpoint
    assert not checkpoint.contains("a")
    assert "a" not in checkpoint
    assert checkpoint.folder == str(folder)
    assert repr(checkpoint) == f"Checkpoint({str(folder)!r}: 8 tensors)"


@pytest.mark.parametrize("name", [name for name, x in TENSORS.items() if x.dtype.kind == "f"])
def test_elements(checkpoint, name):
    exact = TENSORS[name].astype(np.float32)
    loaded = checkpoint.load(name)
    same_bits(loaded, exact)
    same_bits(checkpoint.load(name, exact.shape), exact)
    loaded[...] = 7  # in memory of its own
    same_bits(checkpoint.load(name), exact)


def test_packed_weights(checkpoint):
    for prefix, dtype in (("a.", "float32"), ("b.", "float16")):
        packed = checkpoint.pack(prefix)
        assert type(packed) is headlane.PackedMatrix
        assert (packed.dtype, packed.shape) == (dtype, (70, 5))
        same_bits(packed.decoded().T, TENSORS[prefix + "weight"].astype(np.float32))
        for other in ("bfloat16", "int8_group32"):
            theirs = headlane.PackedMatrix(packed.decoded(), dtype=other)
            same_bits(checkpoint.pack(prefix, dtype=other, num_threads=2).decoded(), theirs.decoded())
    check_stored(checkpoint.pack("c."), Q.T, TENSORS["c.weight_scale"][:, 0], "int8")


def test_a_packed_layer_computes_what_the_layer_does():
    checkpoint = models.Checkpoint(calls.LITTLE)
    name = "encoder.block.0.layer.0.SelfAttention.q."
    layer = headlane.Linear({"weight": checkpoint.load(f"{name}weight")})
    x = RNG.standard_normal((3, checkpoint.shape(f"{name}weight")[1]), np.float32)
    same_bits(headlane.linear(x, checkpoint.pack(name)), layer(x))


def test_several_files(tmp_path):
    files = {"x.safetensors": ["a.weight"], "y.safetensors": ["b.weight", "one"]}
    for file, names in files.items():
        safetensors.save_file({name: TENSORS[name] for name in names}, tmp_path / file)
    index = {"weight_map": {name: file for file, names in files.items() for name in names}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    checkpoint = models.Checkpoint(tmp_path)
    assert checkpoint.names() == ["a.weight", "b.weight", "one"]
    same_bits(checkpoint.load("a.weight"), X)
    assert checkpoint.pack("b.").dtype == "float16"


def test_copies_and_pickles(checkpoint, folder, monkeypatch):
    assert copy.copy(checkpoint) is copy.deepcopy(checkpoint) is checkpoint
    monkeypatch.chdir(folder.parent)
    other = models.Checkpoint(folder.name)
    monkeypatch.chdir("/")
    for one in (other, pickle.loads(pickle.dumps(other))):
        assert one.folder == str(folder)
        same_bits(one.load("a.weight"), X)


def test_folders_that_are_refused(tmp_path):
    for wrong in (3, None):
        with pytest.raises(TypeError, match="Checkpoint: folder has type .*; wanted: str or os.PathLike"):
            models.Checkpoint(wrong)
    with pytest.raises(models.CheckpointError, match="Checkpoint: there is no folder"):
        models.Checkpoint(tmp_path / "none")
    with pytest.raises(models.CheckpointError, match="there is neither model.safetensors nor"):
        models.Checkpoint(tmp_path)


def test_calls_that_are_refused(checkpoint):
    error = models.CheckpointError
    for method in (checkpoint.contains, checkpoint.shape, checkpoint.load, checkpoint.pack):
        name = f"Checkpoint.{method.__name__}: {'prefix' if method == checkpoint.pack else 'name'}"
        for wrong in (3, None, b"one"):
            with pytest.raises(TypeError, match=f"^{name} is .*; wanted: a str"):
                method(wrong)
        with pytest.raises(ValueError, match=f"^{name} is .*no Unicode text"):
            method("\udc80")
    for method in (checkpoint.shape, checkpoint.load):
        with pytest.raises(error, match="there is no tensor 'two'"):
            method("two")
    with pytest.raises(error, match="there is no tensor 'x.weight'"):
        checkpoint.pack("x.")
    with pytest.raises(error, match="tensor 'c.weight': is of I8, only F32, F16 and BF16 can be loaded"):
        checkpoint.load("c.weight")
    with pytest.raises(error, match=r"tensor 'one': has the shape \[\], \[1\] is expected"):
        checkpoint.load("one", (1,))
    with pytest.raises(TypeError, match=r"Checkpoint.load: shape\[0\] is '1'; wanted: an integer"):
        checkpoint.load("one", ["1"])
    with pytest.raises(error, match=r"tensor 'd.weight': has the shape \[70\], a matrix is expected"):
        checkpoint.pack("d.")
    with pytest.raises(error, match="tensor 'e.weight': is of I64, only F32, F16, BF16 and I8 can be packed"):
        checkpoint.pack("e.")
    with pytest.raises(ValueError, match="Checkpoint.pack: dtype is 'int4'; there are float32, bfloat16"):
        checkpoint.pack("a.", dtype="int4")
    with pytest.raises(TypeError, match="Checkpoint.pack: clamp is None; wanted: True or False"):
        checkpoint.pack("a.", clamp=None)
    with pytest.raises(ValueError, match="Checkpoint.pack: num_threads is -1, the minimum is 0"):
        checkpoint.pack("a.", num_threads=-1)
    with pytest.raises(AttributeError):
        models.Checkpoint.__new__(models.Checkpoint).names()
