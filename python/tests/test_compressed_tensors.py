"""Checkpoint.pack: what compressed-tensors quantises and stores, with its numbers, scales and elements."""

import headlane
import numpy as np
import pytest
from stored import check_stored, same_bits

models = pytest.importorskip("headlane.models", reason="headlane was built without its models")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("compressed_tensors", reason="compressed-tensors is not installed")
save_file = pytest.importorskip("safetensors.torch").save_file

from compressed_tensors.compressors import BaseCompressor  # noqa: E402
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme  # noqa: E402
from compressed_tensors.quantization.lifecycle.forward import quantize  # noqa: E402
from compressed_tensors.quantization.utils import calculate_qparams  # noqa: E402

OUT, IN = 40, 256


def weight(dtype=torch.float32):
    """Random; the largest number is negative, and with 8 bits has a scale of 1/16."""
    w = torch.randn(OUT, IN, generator=torch.Generator().manual_seed(0))
    w[0, 0] = -127.5 / 16
    return w.to(dtype)


class Layer:
    """A weight as compressed-tensors stores it in the given format."""

    def __init__(self, form, bits, strategy, dtype=torch.float32, group=None, half=False, symmetric=True):
        self.arguments = QuantizationArgs(
            num_bits=bits, type="int", symmetric=symmetric, strategy=strategy, group_size=group
        )
        self.scheme = QuantizationScheme(targets=["Linear"], weights=self.arguments)
        self.compressor = BaseCompressor.get_value_from_registry(form)
        w = weight(dtype)
        shape = {"channel": (OUT, 1, IN), "tensor": (1, 1, OUT * IN), "group": (OUT, -1, group)}[strategy]
        parts = w.reshape(shape)
        scale, zero_point = calculate_qparams(parts.amin(2), parts.amax(2), self.arguments)
        if strategy == "tensor":
            scale, zero_point = scale.reshape(1), zero_point.reshape(1)
        if half:  # scales that float16 has
            scale = scale.half().float()
        state = {"weight": w, "weight_scale": scale, "weight_zero_point": zero_point}
        self.scale = scale
        self.numbers = quantize(w, scale, zero_point, self.arguments, dtype=torch.int8).numpy()
        self.stored = self.compressor.compress(state, self.scheme)

    def elements(self):
        return self.compressor.decompress(self.stored, self.scheme)["weight"]

    def checkpoint(self, folder):
        save_file({f"a.b.{name}": x for name, x in self.stored.items()}, folder / "model.safetensors")
        return models.Checkpoint(folder)


def group_scales(scale):
    """Those of groups of 32 columns, in float16, [in / 32, out]."""
    scales = scale.float().numpy().astype(np.float16)
    return np.repeat(scales, IN // 32 // scales.shape[1], axis=1).T


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("strategy", ["channel", "tensor"])
@pytest.mark.parametrize("form", ["int-quantized", "naive-quantized", "pack-quantized"])
def test_w8a8_and_w8a16(form, strategy, dtype, tmp_path):
    """8 bits, with a scale for each row or for all; a largest number that is negative is -128."""
    layer = Layer(form, 8, strategy, dtype)
    checkpoint = layer.checkpoint(tmp_path)
    assert (layer.numbers == -128).any()
    name = "weight_packed" if form == "pack-quantized" else "weight"
    with pytest.raises(
        models.CheckpointError, match=rf"tensor 'a.b.{name}': .*\] is -128; int8 has -127 … 127"
    ):
        checkpoint.pack("a.b.")
    packed = checkpoint.pack("a.b.", clamp=True)
    scales = np.broadcast_to(layer.scale.float().numpy().reshape(-1), OUT)
    check_stored(packed, np.maximum(layer.numbers, -127).T, scales, "int8")
    elements = layer.elements()
    kept = layer.numbers != -128
    ours = torch.from_numpy(np.ascontiguousarray(packed.decoded().T)).to(dtype)
    assert torch.equal(ours[kept], elements[kept])


def test_without_minus_128(tmp_path):
    """Then clamp changes nothing."""
    layer = Layer("int-quantized", 8, "channel")
    layer.stored["weight"] = layer.stored["weight"].clamp(-127, 127)
    checkpoint = layer.checkpoint(tmp_path)
    packed = checkpoint.pack("a.b.")
    same_bits(packed.decoded().T, layer.elements().numpy())
    for ours, theirs in zip(packed.unpack_numbers(), checkpoint.pack("a.b.", clamp=True).unpack_numbers()):
        same_bits(ours, theirs)
    x = np.random.default_rng(0).standard_normal((3, IN), np.float32)
    same_bits(headlane.linear(x, packed), headlane.matmul(x, layer.elements().numpy().T))


@pytest.mark.parametrize("group", [32, 64, 128, 256])
def test_w4a16(group, tmp_path):
    layer = Layer("pack-quantized", 4, "group", group=group, half=True)
    packed = layer.checkpoint(tmp_path).pack("a.b.")
    assert {-8, 7} <= set(layer.numbers.flat)
    check_stored(packed, layer.numbers.T, group_scales(layer.scale), "int4_group32")
    same_bits(packed.decoded().T, layer.elements().numpy())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_w4a16_of_16_bits(dtype, tmp_path):
    """Scales of 16 bits are exact; compressed-tensors then rounds its elements, too."""
    layer = Layer("pack-quantized", 4, "group", dtype, group=128)
    packed = layer.checkpoint(tmp_path).pack("a.b.")
    check_stored(packed, layer.numbers.T, group_scales(layer.scale), "int4_group32")
    np.testing.assert_array_equal(group_scales(layer.scale)[0], layer.scale[:, 0].float().numpy())
    assert torch.equal(torch.from_numpy(packed.decoded().T.copy()).to(dtype), layer.elements())


def test_w4a16_with_a_scale_for_each_row(tmp_path):
    layer = Layer("pack-quantized", 4, "channel", half=True)
    packed = layer.checkpoint(tmp_path).pack("a.b.")
    check_stored(packed, layer.numbers.T, group_scales(layer.scale), "int4_group32")
    same_bits(packed.decoded().T, layer.elements().numpy())


@pytest.mark.parametrize("form", ["pack-quantized", "naive-quantized"])
def test_groups_of_8_bits(form, tmp_path):
    """Scales of float32 are rounded to float16."""
    layer = Layer(form, 8, "group", group=64)
    packed = layer.checkpoint(tmp_path).pack("a.b.", clamp=True)
    check_stored(packed, np.maximum(layer.numbers, -127).T, group_scales(layer.scale), "int8_group32")
    assert (group_scales(layer.scale)[0] != layer.scale[:, 0].numpy()).any()


def test_another_type(tmp_path):
    """Packed from what the numbers and scales decode to."""
    checkpoint = Layer("pack-quantized", 4, "group", group=32, half=True).checkpoint(tmp_path)
    elements = checkpoint.pack("a.b.").decoded()
    for dtype in ("float32", "float16", "int8", "int8_group32"):
        packed = checkpoint.pack("a.b.", dtype=dtype)
        assert packed.dtype == dtype
        same_bits(packed.decoded(), headlane.PackedMatrix(elements, dtype=dtype).decoded())


def test_weights_that_are_not_symmetric(tmp_path):
    layer = Layer("pack-quantized", 4, "group", group=32, symmetric=False)
    with pytest.raises(
        models.CheckpointError, match=r"tensor 'a.b.weight_zero_point': is not 0: only symmetric"
    ):
        layer.checkpoint(tmp_path).pack("a.b.")
