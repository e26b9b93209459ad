"""An ONNX backend for models of one node, on headlane: as much of the operators as headlane has so
far.
"""

import headlane
import numpy as np
from onnx import helper
from onnx.backend.base import Backend, BackendRep


def attention(q, k, v, attn_mask=None, past_key=None, past_value=None, nonpad_kv_seqlen=None, **attributes):
    """Attention of opsets 23 to 25; (Y, present_key, present_value, the weights)."""
    is_causal, scale = bool(attributes.pop("is_causal", 0)), attributes.pop("scale", None)
    q_num_heads, kv_num_heads = (attributes.pop(f"{side}_num_heads", 0) for side in ("q", "kv"))
    softcap = attributes.pop("softcap", 0.0)
    attributes.pop("softmax_precision", None)  # float32 is precise enough for these cases
    with_weights = attributes.pop("qk_matmul_output_mode", 0) == 3  # after softmax
    window = tuple(attributes.pop(f"{side}_window_size", -1) for side in ("left", "right"))
    assert not attributes, attributes
    packed = q.ndim == 3  # [batch, length, heads * dim]
    if packed:
        q, k, v = (
            x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)
            for x, heads in ((q, q_num_heads), (k, kv_num_heads), (v, kv_num_heads))
        )
    past = 0
    if past_key is not None:
        past = past_key.shape[2]
        k, v = np.concatenate((past_key, k), axis=2), np.concatenate((past_value, v), axis=2)
    if attn_mask is not None and (missing := k.shape[2] - attn_mask.shape[-1]) > 0:  # later keys are masked
        masked = False if attn_mask.dtype == bool else -np.inf
        attn_mask = np.pad(
            attn_mask, [(0, 0)] * (attn_mask.ndim - 1) + [(0, missing)], constant_values=masked
        )
    options = {
        "is_causal": is_causal,
        "scale": scale,
        "enable_gqa": True,
        # ONNX counts positions backwards from the last key of each batch element, if it says which
        # one that is.
        "causal_offset": past if nonpad_kv_seqlen is None else nonpad_kv_seqlen - q.shape[2],
        "softcap": softcap,
        "window": window,
        "key_lengths": nonpad_kv_seqlen,
    }
    y = headlane.scaled_dot_product_attention(q, k, v, attn_mask, **options)
    if packed:
        y = y.swapaxes(1, 2).reshape(y.shape[0], y.shape[2], -1)
    weights = headlane.attention_weights(q, k, attn_mask, **options) if with_weights else None
    return y, k, v, weights


def gemm(a, b, c=None, *, alpha=1.0, beta=1.0, transA=0, transB=0):
    """c broadcasts to the result, and is scaled by beta; it is read from `out`, so copied there."""
    a, b = a.T if transA else a, b.T if transB else b
    if c is None:
        return (headlane.gemm(a, b, alpha=alpha),)
    out = np.broadcast_to(c, (a.shape[0], b.shape[1])).copy()
    return (headlane.gemm(a, b, out, alpha=alpha, beta=beta),)


def product_of_integers(a, b):
    """Exact: b is stored in int8, or in bfloat16, which has all integers up to 256."""

    def times(x, y):
        if np.abs(y).max() <= 127:
            y = headlane.PackedMatrix.from_numbers(y.astype(np.int8), np.ones(y.shape[-1], np.float32))
        else:
            y = headlane.PackedMatrix(y.astype(np.float32), dtype="bfloat16")
        return headlane.matmul(x.astype(np.float32), y)

    return times(a, b) if b.ndim == 2 else np.stack([times(x, y) for x, y in zip(a, b, strict=True)])


def matmul_integer(a, b, a_zero=0, b_zero=0):
    return (product_of_integers(a.astype(int) - a_zero, b.astype(int) - b_zero).astype(np.int32),)


def qlinear_matmul(a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero):
    (integers,) = matmul_integer(a, b, a_zero, b_zero)
    limits = np.iinfo(y_zero.dtype)
    y = np.rint(integers * (a_scale.astype(np.float32) * b_scale / y_scale)) + y_zero
    return (np.clip(y, limits.min, limits.max).astype(y_zero.dtype),)


# headlane has no such operators: integers are stored weights, or rows within a product.
ABSENT = {
    "Exp": "headlane offers no exp by itself",
    "DequantizeLinear": "stored integers have no zero point, and a PackedMatrix two axes",
    "DynamicQuantizeLinear": "rows are quantised within a product: their integers are no result",
    "QuantizeLinear": "the scales of stored integers follow from the numbers",
}

OPERATORS = {
    "Attention": attention,
    "Erf": lambda x: (headlane.erf(x),),
    "Gelu": lambda x, approximate="none": (headlane.gelu(x, approximate),),
    "Gemm": gemm,
    "LogSoftmax": lambda x, axis=-1: (headlane.log_softmax(x, axis),),
    "MatMul": lambda a, b: (headlane.matmul(a, b),),
    "MatMulInteger": matmul_integer,
    "QLinearMatMul": qlinear_matmul,
    "Relu": lambda x: (headlane.relu(x),),
    "Sigmoid": lambda x: (headlane.sigmoid(x),),
    "Softmax": lambda x, axis=-1: (headlane.softmax(x, axis),),
    "Tanh": lambda x: (headlane.tanh(x),),
}


def _value(attribute):
    value = helper.get_attribute_value(attribute)
    return value.decode() if isinstance(value, bytes) else value


class Prepared(BackendRep):
    """One node, ready to run."""

    def __init__(self, model):
        (self._node,) = model.graph.node
        self._names = [value.name for value in model.graph.input]
        self._attributes = {a.name: _value(a) for a in self._node.attribute}

    def run(self, inputs, **_):
        values = dict(zip(self._names, inputs))
        operands = [values[name] if name else None for name in self._node.input]
        outputs = OPERATORS[self._node.op_type](*operands, **self._attributes)
        return tuple(np.asarray(y) for y, name in zip(outputs, self._node.output) if name)


class HeadlaneBackend(Backend):
    """Float32 on the CPU."""

    @classmethod
    def prepare(cls, model, device="CPU", **_):
        return Prepared(model)

    @classmethod
    def supports_device(cls, device):
        return device == "CPU"
