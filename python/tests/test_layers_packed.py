"""Layers and models whose weights are stored before: a PackedMatrix in a state, and compressed-tensors."""

import json
import pickle

import headlane
import numpy as np
import pytest
import random_bert
import random_t5

RNG = np.random.default_rng(0)
TYPES = ["float32", "bfloat16", "float16", "int8", "int8_group32", "int4_group32"]


def normal(*shape):
    return RNG.standard_normal(shape, np.float32)


STATE = {
    "self_attn.in_proj_weight": normal(96, 32),
    "self_attn.in_proj_bias": normal(96),
    "self_attn.out_proj.weight": normal(32, 32),
    "linear1.weight": normal(50, 32),
    "linear1.bias": normal(50),
    "linear2.weight": normal(32, 50),
    "norm1.weight": normal(32),
    "norm2.weight": normal(32),
}
X = normal(2, 7, 32)


def packed(state, dtype):
    """Its matrices as PackedMatrix, in_proj_weight in three."""
    result = {}
    for name, x in state.items():
        if name.endswith("in_proj_weight"):
            for which, rows in zip("qkv", np.split(x, 3), strict=True):
                result[name.replace("in_proj", f"{which}_proj")] = headlane.PackedMatrix(rows.T, dtype=dtype)
        else:
            result[name] = headlane.PackedMatrix(x.T, dtype=dtype) if x.ndim == 2 else x
    return result


@pytest.mark.parametrize("dtype", TYPES)
def test_layers(dtype):
    state = packed(STATE, dtype)
    for layer, options in (
        (headlane.EncoderLayer, {"num_heads": 4}),
        (headlane.FeedForward, {"activation": "gelu"}),
        (headlane.Linear, {"prefix": "linear1."}),
    ):
        expected = layer(STATE, weights=dtype, **options)(X)
        np.testing.assert_array_equal(layer(state, **options)(X), expected)
    table = {"weight": STATE["linear1.weight"]}
    one = headlane.Embedding(packed(table, dtype), tied=True)
    other = headlane.Embedding(table, tied=True, weights=dtype)
    np.testing.assert_array_equal(one.logits(X), other.logits(X))
    np.testing.assert_array_equal(one([3, 49]), other([3, 49]))


def test_numbers_are_kept():
    """Those of from_numbers, which packing the elements anew would not find."""
    numbers, scales = RNG.integers(-90, 90, (32, 50), np.int8), np.full(50, 0.013, np.float32)
    matrix = headlane.PackedMatrix.from_numbers(numbers, scales, dtype="int8")
    layer = headlane.Linear({"weight": matrix, "bias": STATE["linear1.bias"]}, activations="int8")
    expected = headlane.linear(X, matrix, STATE["linear1.bias"], activations="int8")
    np.testing.assert_array_equal(layer(X), expected)
    np.testing.assert_array_equal(layer.state_dict()["weight"], matrix.decoded().T)


def test_errors():
    matrix = headlane.PackedMatrix(normal(32, 50), dtype="int8")
    with pytest.raises(TypeError, match="Linear has weights that were packed before it"):
        pickle.dumps(headlane.Linear({"weight": matrix}))
    with pytest.raises(ValueError, match="bias is a PackedMatrix, it must be a tensor"):
        headlane.Linear({"weight": matrix, "bias": matrix})
    with pytest.raises(
        ValueError, match=r"linear2.weight is a PackedMatrix \[32, 50\], it must be \[50, 32\]"
    ):
        headlane.FeedForward({"linear1.weight": matrix, "linear2.weight": matrix})
    with pytest.raises(TypeError, match="weight was not initialised"):
        headlane.Linear({"weight": headlane.PackedMatrix.__new__(headlane.PackedMatrix)})
    assert pickle.loads(pickle.dumps(headlane.Linear(STATE, "linear1.")))(X).shape == (2, 7, 50)


def quantized(folder, form, bits, group):
    """Stores the weights of the linear layers of a saved model as compressed-tensors does, and decoded in
    another folder, which it returns."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("compressed_tensors", reason="compressed-tensors is not installed")
    files = pytest.importorskip("safetensors.torch")
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from compressed_tensors.quantization.utils import calculate_qparams

    strategy = "group" if group else "channel"
    arguments = QuantizationArgs(
        num_bits=bits, type="int", symmetric=True, strategy=strategy, group_size=group
    )
    scheme = QuantizationScheme(targets=["Linear"], weights=arguments)
    compressor = BaseCompressor.get_value_from_registry(form)
    tensors = files.load_file(folder / "model.safetensors")
    stored, decoded = {}, {}
    for name, x in tensors.items():
        if x.ndim != 2 or not any(part in name for part in ("Attention.", "DenseReluDense", "layer.")):
            stored[name] = decoded[name] = x
            continue
        if "relative" in name or "embeddings" in name:
            stored[name] = decoded[name] = x
            continue
        parts = x.reshape(x.shape[0], -1, group or x.shape[1])
        scale, zero = calculate_qparams(parts.amin(2), parts.amax(2), arguments)
        if group:
            scale = scale.half().float()
        layer = compressor.compress({"weight": x, "weight_scale": scale, "weight_zero_point": zero}, scheme)
        if "weight" in layer and layer["weight"].dtype == torch.int8:
            layer["weight"] = layer["weight"].clamp(min=-127)
        stored.update({name.removesuffix("weight") + part: y for part, y in layer.items()})
        decoded[name] = compressor.decompress(layer, scheme)["weight"].float()
    other = folder / "decoded"
    other.mkdir()
    for file in folder.glob("*.json"):
        (other / file.name).write_text(file.read_text())
    files.save_file({name: x.contiguous() for name, x in decoded.items()}, other / "model.safetensors")
    files.save_file({name: x.contiguous() for name, x in stored.items()}, folder / "model.safetensors")
    assert len(stored) > len(decoded)
    assert json.loads((other / "config.json").read_text())
    return other


FORMS = [("int-quantized", 8, None), ("pack-quantized", 4, 32)]


@pytest.mark.parametrize(("form", "bits", "group"), FORMS)
def test_bert(form, bits, group, tmp_path):
    models = pytest.importorskip("headlane.models", reason="headlane was built without its models")
    random_bert.made(tmp_path, hidden_size=64, intermediate_size=96)
    other = quantized(tmp_path, form, bits, group)
    ids = random_bert.random_ids(8)
    ours, decoded = models.Bert(tmp_path), models.Bert(other)
    for x, y in zip(ours.encode(ids), decoded.encode(ids), strict=True):
        np.testing.assert_array_equal(x, y)
    integers = models.Bert(tmp_path, weights="int8", activations="int8").encode(ids)
    assert np.abs(integers[0] - ours.encode(ids)[0]).max() > 0


@pytest.mark.parametrize(("form", "bits", "group"), FORMS)
def test_t5(form, bits, group, tmp_path):
    models = pytest.importorskip("headlane.models", reason="headlane was built without its models")
    random_t5.random_model(
        vocab_size=199, d_model=64, d_kv=8, d_ff=96, num_layers=2, num_heads=4
    ).save_pretrained(tmp_path)
    other = quantized(tmp_path, form, bits, group)
    ids = random_t5.inputs(199, (5, 9, 12))
    assert models.T5(tmp_path).generate(ids, max_length=20) == models.T5(other).generate(ids, max_length=20)
