"""Transformer layers as OpenVINO's operations."""

from __future__ import annotations

import numpy as np


class Graph:
    """Weights have the names of torch.nn.TransformerEncoderLayer. mask: a node that broadcasts to bool
    [batch, heads, length, length], false for padding."""

    def __init__(self, ops, heads: int, eps: float, mask=None) -> None:
        self.ops, self.heads, self.eps, self.mask = ops, heads, eps, mask

    def linear(self, x, weight: np.ndarray, bias: np.ndarray):
        ops = self.ops
        return ops.add(ops.matmul(x, ops.constant(weight), False, True), ops.constant(bias))

    def norm(self, x, weight: np.ndarray, bias: np.ndarray):
        ops = self.ops
        last = ops.constant(np.array([-1], np.int64))
        made = ops.mvn(x, last, True, self.eps, "INSIDE_SQRT")
        return ops.add(ops.multiply(made, ops.constant(weight)), ops.constant(bias))

    def attention(self, x, weights: dict[str, np.ndarray], prefix: str = ""):
        ops, own = self.ops, f"{prefix}self_attn."
        mixed = self.linear(x, weights[own + "in_proj_weight"], weights[own + "in_proj_bias"])
        size = len(weights[own + "out_proj.bias"]) // self.heads
        apart = ops.constant(np.array([0, 0, self.heads, size], np.int64))
        together = ops.constant(np.array([0, 0, -1], np.int64))
        order = ops.constant(np.array([0, 2, 1, 3], np.int64))
        parts = ops.split(mixed, ops.constant(np.int64(2)), 3)
        q, k, v = (ops.transpose(ops.reshape(part, apart, True), order) for part in parts.outputs())
        attended = ops.transpose(ops.scaled_dot_product_attention(q, k, v, self.mask), order)
        joined = ops.reshape(attended, together, True)
        return self.linear(joined, weights[own + "out_proj.weight"], weights[own + "out_proj.bias"])

    def encoder_layer(self, x, weights: dict[str, np.ndarray], prefix: str = ""):
        ops = self.ops

        def tensors(name: str):
            return weights[f"{prefix}{name}.weight"], weights[f"{prefix}{name}.bias"]

        x = self.norm(ops.add(x, self.attention(x, weights, prefix)), *tensors("norm1"))
        hidden = ops.gelu(self.linear(x, *tensors("linear1")), "ERF")
        return self.norm(ops.add(x, self.linear(hidden, *tensors("linear2"))), *tensors("norm2"))
