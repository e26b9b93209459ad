"""headlane and PyTorch: functions that are called."""

from __future__ import annotations

import math

import numpy as np

from .job import Job, Route


class Headlane(Route):
    def __init__(self, threads: int) -> None:
        import headlane

        headlane.set_num_threads(threads)
        self.library = headlane
        self.about = f"version={headlane.__version__}\tisa={headlane.isa()}"

    def gemm(self, a, b, out):
        gemm = self.library.gemm
        return Job(lambda: gemm(a, b, out=out), lambda _: out)

    def softmax(self, x, mask, out):
        softmax = self.library.softmax
        more = {} if mask is None else {"mask": mask}
        return Job(lambda: softmax(x, out=out, **more), lambda _: out)

    def attention(self, q, k, v, mask, causal, out):
        sdpa = self.library.scaled_dot_product_attention
        grouped = q.shape[1] != k.shape[1]
        return Job(lambda: sdpa(q, k, v, mask, is_causal=causal, enable_gqa=grouped, out=out), lambda _: out)

    def ragged_attention(self, q, k, v, lengths, out):
        sdpa = self.library.scaled_dot_product_attention
        more = {"query_lengths": lengths, "key_lengths": lengths}
        return Job(lambda: sdpa(q, k, v, out=out, **more), lambda _: out)


class HeadlanePrepacked(Headlane):
    """linear on a PackedMatrix."""

    def gemm(self, a, b, out):
        linear, weights = self.library.linear, self.library.PackedMatrix(b)
        return Job(lambda: linear(a, weights, out=out), lambda _: out)


class Torch(Route):
    """mm, softmax, and scaled_dot_product_attention, which on a CPU is its flash kernel. It has no out."""

    def __init__(self, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self.torch = torch
        self.about = f"version={torch.__version__}"

    def tensors(self, *arrays):
        return [array if array is None else self.torch.from_numpy(array) for array in arrays]

    def gemm(self, a, b, out):
        mm, (a, b, out) = self.torch.mm, self.tensors(a, b, out)
        return Job(lambda: mm(a, b, out=out), lambda _: out.numpy())

    def softmax(self, x, mask, out):
        softmax, (x, hidden, out) = self.torch.softmax, self.tensors(x, None if mask is None else ~mask, out)
        if hidden is None:
            return Job(lambda: softmax(x, -1, out=out), lambda _: out.numpy())
        return Job(lambda: softmax(x.masked_fill(hidden, -math.inf), -1, out=out), lambda _: out.numpy())

    def attention(self, q, k, v, mask, causal, out):
        sdpa, (q, k, v, mask) = (
            self.torch.nn.functional.scaled_dot_product_attention,
            self.tensors(q, k, v, mask),
        )
        grouped = q.shape[1] != k.shape[1]
        return Job(
            lambda: sdpa(q, k, v, mask, is_causal=causal, enable_gqa=grouped), lambda made: made.numpy()
        )

    def attention_in_bfloat16(self, q, k, v):
        sdpa = self.torch.nn.functional.scaled_dot_product_attention
        q, k, v = (x.bfloat16() for x in self.tensors(q, k, v))
        return Job(lambda: sdpa(q, k, v), lambda made: made.float().numpy())


class TorchMaterialised(Torch):
    """softmax(q·kᵀ + mask)·v with the scores in memory; the causal mask is made beforehand and added. The query
    heads of a group are stacked, as more queries."""

    def attention(self, q, k, v, mask, causal, out):
        softmax, scale = self.torch.softmax, 1 / math.sqrt(q.shape[-1])
        shape = q.shape
        if q.shape[1] != k.shape[1]:  # without a mask
            q = q.reshape(q.shape[0], k.shape[1], -1, q.shape[3])
        if causal:
            mask = np.triu(np.full((q.shape[2], k.shape[2]), -np.inf, np.float32), 1)
        elif mask is not None and mask.dtype == np.bool_:
            mask = np.where(mask, np.float32(0), np.float32(-np.inf))
        q, k, v, mask = self.tensors(q, k, v, mask)

        def plain():
            return softmax((q @ k.mT).mul_(scale), -1) @ v

        def masked():
            return softmax((q @ k.mT).mul_(scale).add_(mask), -1) @ v

        return Job(plain if mask is None else masked, lambda made: made.reshape(shape).numpy())


class TorchPrepacked(Torch):
    """oneDNN's linear on a weight in its own layout, which torch.compile uses when the weights are frozen."""

    def gemm(self, a, b, out):
        a, b = self.tensors(a, b)
        linear = self.torch.ops.mkldnn._linear_pointwise.default
        weight = self.torch.ops.mkldnn._reorder_linear_weight(b.T.contiguous(), a.shape[0])
        return Job(lambda: linear(a, weight, None, "none", [], ""), lambda made: made.numpy())
