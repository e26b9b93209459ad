"""Transformer layers as ONNX nodes, with Microsoft's fused ones, as ONNX Runtime's optimizer makes them."""

from __future__ import annotations

from typing import Any

import numpy as np

MICROSOFT = "com.microsoft"


class Graph:
    """Collects nodes and weights; each function returns the name of its result. Weights have their names in
    torch.nn.TransformerEncoderLayer.

    unpacked: attention as a product and a MultiHeadAttention, whose kernel need not store all scores;
    otherwise as one Attention.

    mask: the name of an input, int32 [batch, length], 0 for padding."""

    def __init__(self, make_node, heads: int, eps: float, unpacked: bool = False, mask: str = "") -> None:
        self.make_node, self.heads, self.eps, self.unpacked = make_node, heads, eps, unpacked
        self.mask = mask
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}

    def node(self, kind: str, inputs: list[str], domain: str = "", result: str = "", count: int = 1, **more):
        """The name of the result, or a list of `count` of them."""
        place = len(self.nodes)
        names = [result or f"{kind}.{place}.{i}" for i in range(count)]
        self.nodes.append(self.make_node(kind, inputs, names, domain=domain, **more))
        return names[0] if count == 1 else names

    def constant(self, array: np.ndarray) -> str:
        name = f"constant.{len(self.constants)}"
        self.constants[name] = np.ascontiguousarray(array)
        return name

    def linear(self, x: str, weight: np.ndarray, bias: np.ndarray | None = None, result: str = "") -> str:
        if bias is None:
            return self.node("MatMul", [x, self.constant(weight.T)], result=result)
        return self.node("Add", [self.linear(x, weight), self.constant(bias)], result=result)

    def norm(self, x: str, weight: np.ndarray, bias: np.ndarray, result: str = "") -> str:
        inputs = [x, self.constant(weight), self.constant(bias)]
        return self.node("LayerNormalization", inputs, result=result, axis=-1, epsilon=self.eps)

    def attention(self, x: str, weights: dict[str, np.ndarray], prefix: str = "") -> str:
        """Without the output's bias: that is added with the rest, or by attention_layer."""
        own = f"{prefix}self_attn."
        weight, bias = weights[own + "in_proj_weight"], weights[own + "in_proj_bias"]
        if self.unpacked:
            q, k, v = self.node("Split", [self.linear(x, weight)], count=3, axis=-1, num_outputs=3)
            inputs, kind = [q, k, v, self.constant(bias)], "MultiHeadAttention"
        else:
            inputs, kind = [x, self.constant(weight.T), self.constant(bias)], "Attention"
        inputs += [self.mask] if self.mask else []
        attended = self.node(kind, inputs, MICROSOFT, num_heads=self.heads)
        return self.linear(attended, weights[own + "out_proj.weight"])

    def attention_layer(self, x: str, weights: dict[str, np.ndarray], result: str) -> str:
        bias = self.constant(weights["self_attn.out_proj.bias"])
        return self.node("Add", [self.attention(x, weights), bias], result=result)

    def encoder_layer(
        self, x: str, weights: dict[str, np.ndarray], result: str = "", prefix: str = ""
    ) -> str:
        def add_and_norm(more: str, bias: str, norm: str, result: str = "") -> str:
            inputs = [more, x]
            inputs += [
                self.constant(weights[prefix + name]) for name in (f"{norm}.weight", f"{norm}.bias", bias)
            ]
            return self.node("SkipLayerNormalization", inputs, MICROSOFT, result, epsilon=self.eps)

        x = add_and_norm(self.attention(x, weights, prefix), "self_attn.out_proj.bias", "norm1")
        hidden = self.linear(x, weights[prefix + "linear1.weight"])
        inputs = [hidden, self.constant(weights[prefix + "linear1.bias"])]
        hidden = self.node("BiasGelu", inputs, MICROSOFT)
        more = self.linear(hidden, weights[prefix + "linear2.weight"])
        return add_and_norm(more, "linear2.bias", "norm2", result)
