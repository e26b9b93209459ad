"""ONNX Runtime and OpenVINO on norms and layers: models that contain the weights, compiled and bound."""

from __future__ import annotations

import numpy as np

from ..cases.layers import ACTIVATIONS
from ..truth.layers import LAYER_EPS, RMS_EPS
from . import compiled, graph_onnx, graph_openvino


class OnnxRuntime(compiled.OnnxRuntime):
    """Microsoft's fused Attention, SkipLayerNormalization and BiasGelu."""

    unpacked = False

    def norm(self, kind, x, weight, bias, out):
        make_node = self.onnx.helper.make_node
        if kind in ACTIVATIONS:
            return self.job([make_node(kind.capitalize(), ["x"], ["out"])], {"x": x}, out)
        feeds = {"x": x, "weight": weight}
        if kind == "rms_norm":  # ONNX Runtime's own name for it
            name, eps = "SimplifiedLayerNormalization", RMS_EPS
        else:
            name, eps, feeds["bias"] = "LayerNormalization", LAYER_EPS, bias
        node = make_node(name, list(feeds), ["out"], axis=-1, epsilon=eps)
        return self.job([node], feeds, out, constants=("weight", "bias")[: len(feeds) - 1])

    def layer(self, kind, x, weights, heads, out):
        graph = graph_onnx.Graph(self.onnx.helper.make_node, heads, LAYER_EPS, self.unpacked)
        (graph.encoder_layer if kind == "encoder" else graph.attention_layer)("x", weights, result="out")
        return self.job(graph.nodes, {"x": x, **graph.constants}, out, constants=tuple(graph.constants))


class OnnxRuntimeMha(OnnxRuntime):
    """A product and MultiHeadAttention in place of Attention: better for long sequences."""

    unpacked = True


class OpenVino(compiled.OpenVino):
    def norm(self, kind, x, weight, bias, out):
        ops, parameter = self.ops, self.parameter(x)
        if kind == "gelu":
            node = ops.gelu(parameter, "ERF")
        elif kind in ACTIVATIONS:
            node = getattr(ops, kind)(parameter)
        elif kind == "layer_norm":
            node = graph_openvino.Graph(ops, 1, LAYER_EPS).norm(parameter, weight, bias)
        else:
            last = ops.constant(np.array([-1], np.int64))
            square = ops.reduce_mean(ops.power(parameter, ops.constant(np.float32(2))), last, True)
            root = ops.sqrt(ops.add(square, ops.constant(np.float32(RMS_EPS))))
            node = ops.multiply(ops.divide(parameter, root), ops.constant(weight))
        return self.job(node, [parameter], [x], out)

    def layer(self, kind, x, weights, heads, out):
        graph, parameter = graph_openvino.Graph(self.ops, heads, LAYER_EPS), self.parameter(x)
        node = (graph.encoder_layer if kind == "encoder" else graph.attention)(parameter, weights)
        return self.job(node, [parameter], [x], out)
