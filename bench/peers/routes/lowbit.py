"""Products by weights in fewer bits, from Python. The modes: "w8" (8 bits, a scale for each column) and "w4"
(4 bits, one for each 32 rows of a column), by float32 activations where a library has that; "bfloat16" and
"w8a8", with activations rounded to the same type in each call. Each library rounds the weights by its own rule
beforehand."""

from __future__ import annotations

import numpy as np

from . import compiled, eager
from .job import Job

GROUP = 32


def quantised(b: np.ndarray, largest: int, group: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Integers [n, groups, group] of the columns of b, at most `largest`, and scales [n, groups, 1]."""
    columns = np.ascontiguousarray(b.T).reshape(b.shape[1], -1, group or b.shape[0])
    scales = (np.abs(columns).max(-1, keepdims=True) / largest).astype(np.float32)
    return np.rint(columns / scales).astype(np.int8), scales


def nibbles(q: np.ndarray) -> np.ndarray:
    """Two integers a byte, the first one in the low bits."""
    low, high = q[..., 0::2].astype(np.uint8), q[..., 1::2].astype(np.uint8)
    return (low & 15) | (high & 15) << 4


class Headlane(eager.Headlane):
    TYPES = {"bfloat16": "bfloat16", "w8": "int8", "w4": "int4_group32", "w8a8": "int8"}

    def lowbit(self, mode, a, b, out):
        linear, weights = self.library.linear, self.library.PackedMatrix(b, dtype=self.TYPES[mode])
        activations = {"bfloat16": "bfloat16", "w8a8": "int8"}.get(mode, "float32")
        return Job(lambda: linear(a, weights, activations=activations, out=out), lambda _: out)


class Torch(eager.Torch):
    """oneDNN's product of bfloat16, its quantized linear with dynamic activations, and the weight-only kernels."""

    def lowbit(self, mode, a, b, out):
        torch = self.torch
        x = torch.from_numpy(a)
        if mode == "bfloat16":  # activations, too
            wide = torch.from_numpy(b).T.contiguous().bfloat16()
            weight = torch.ops.mkldnn._reorder_linear_weight(wide, a.shape[0])
            linear, x = torch.ops.mkldnn._linear_pointwise.default, x.bfloat16()
            return Job(lambda: linear(x, weight, None, "none", [], ""), lambda y: y.float().numpy())
        if mode == "w4":  # activations in bfloat16: those in float32 take a hundred times as long
            q, scales = quantised(b, 7, GROUP)
            weight = torch.from_numpy(q.reshape(b.shape[1], -1).astype(np.int32) + 8)
            weight = torch.ops.aten._convert_weight_to_int4pack_for_cpu(weight, 1)
            both = np.stack([scales[..., 0].T, np.zeros_like(scales[..., 0].T)], -1)
            scales, x = torch.from_numpy(both).bfloat16(), x.bfloat16()
            linear = torch.ops.aten._weight_int4pack_mm_for_cpu
            return Job(lambda: linear(x, weight, GROUP, scales), lambda y: y.float().numpy())
        q, scales = quantised(b, 127)
        if mode == "w8":
            weight, scales = torch.from_numpy(q[:, 0]), torch.from_numpy(scales[:, 0, 0])
            linear = torch.ops.aten._weight_int8pack_mm
            return Job(lambda: linear(x, weight, scales), lambda y: y.numpy())
        torch.backends.quantized.engine = "onednn"
        wide, zeros = torch.from_numpy(b).T.contiguous(), torch.zeros(b.shape[1], dtype=torch.long)
        weight = torch.quantize_per_channel(wide, torch.from_numpy(scales[:, 0, 0]), zeros, 0, torch.qint8)
        weight, linear = torch.ops.quantized.linear_prepack(weight, None), torch.ops.quantized.linear_dynamic
        return Job(lambda: linear(x, weight, True), lambda y: y.numpy())


class OnnxRuntime(compiled.OnnxRuntime):
    """MatMulNBits, whose 8 bits are in groups of 32 as well, and DynamicQuantizeMatMul."""

    def lowbit(self, mode, a, b, out):
        make_node, (k, n) = self.onnx.helper.make_node, b.shape
        names, microsoft = ["a", "b", "scales"], "com.microsoft"
        if mode == "w8a8":
            q, scales = quantised(b, 127)
            node = make_node("DynamicQuantizeMatMul", names, ["out"], domain=microsoft)
            feeds = {"a": a, "b": np.ascontiguousarray(q[:, 0].T), "scales": scales[:, 0, 0]}
            return self.job([node], feeds, out, constants=("b", "scales"))
        bits = 4 if mode == "w4" else 8
        largest = 2 ** (bits - 1) - 1
        q, scales = quantised(b, largest, GROUP)
        unsigned = (q.astype(np.int16) + largest + 1).astype(np.uint8)
        feeds = {"a": a, "b": nibbles(unsigned) if bits == 4 else unsigned, "scales": scales[..., 0]}
        node = make_node(
            "MatMulNBits",
            names,
            ["out"],
            domain=microsoft,
            K=k,
            N=n,
            bits=bits,
            block_size=GROUP,
            accuracy_level=1,
        )
        return self.job([node], feeds, out, constants=("b", "scales"))


class OpenVino(compiled.OpenVino):
    """Compressed weights; activations are rounded in groups of 128 for "w8a8", its fastest."""

    def lowbit(self, mode, a, b, out):
        ops, library = self.ops, self.library
        parameter = self.parameter(a)
        self.settings["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = 128 if mode == "w8a8" else 0
        self.settings["INFERENCE_PRECISION_HINT"] = "bf16" if mode == "bfloat16" else "f32"
        if mode == "bfloat16":
            weight = ops.constant(np.ascontiguousarray(b.T))
        else:
            q, scales = quantised(b, 7 if mode == "w4" else 127, GROUP if mode == "w4" else 0)
            stored = ops.constant(q)
            if mode == "w4":
                four = library.Tensor(nibbles(q), list(q.shape), library.Type.i4)
                stored = library.op.Constant(four, shared_memory=False)
            weight = ops.multiply(ops.convert(stored, np.float32), ops.constant(scales))
            weight = ops.reshape(weight, np.array([b.shape[1], b.shape[0]]), False)
        return self.job(ops.matmul(parameter, weight, False, True), [parameter], [a], out)
