"""headlane and PyTorch on norms and layers: functions and modules that are called."""

from __future__ import annotations

import numpy as np

from ..cases.layers import ACTIVATIONS
from ..truth.layers import LAYER_EPS, RMS_EPS
from .eager import Headlane as HeadlaneFunctions
from .eager import Torch as TorchBase
from .job import Job

ATTENTION = "self_attn."  # the prefix of the attention layer's tensors


class Headlane(HeadlaneFunctions):
    def norm(self, kind, x, weight, bias, out):
        library = self.library
        if kind in ACTIVATIONS:
            activation = getattr(library, kind)
            return Job(lambda: activation(x, out=out), lambda _: out)
        if kind == "rms_norm":
            return Job(lambda: library.rms_norm(x, weight, RMS_EPS, out=out), lambda _: out)
        return Job(lambda: library.layer_norm(x, weight, bias, LAYER_EPS, out=out), lambda _: out)

    def layer(self, kind, x, weights, heads, out):
        if kind == "encoder":
            layer = self.library.EncoderLayer(
                weights, num_heads=heads, activation="gelu", layer_norm_eps=LAYER_EPS
            )
        else:
            layer = self.library.MultiHeadAttention(weights, ATTENTION, num_heads=heads)
        return Job(lambda: layer(x, out=out), lambda _: out)


def without_prefix(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {
        name.removeprefix(ATTENTION): array for name, array in weights.items() if name.startswith(ATTENTION)
    }


class Torch(TorchBase):
    """The modules of torch.nn, on their fast path (eval, no gradients), and the functions of the norms."""

    def job(self, call, x):
        (x,) = self.tensors(x)
        return Job(lambda: call(x), lambda made: made.numpy())

    def norm(self, kind, x, weight, bias, out):
        F, size = self.torch.nn.functional, x.shape[-1:]
        weight, bias = self.tensors(weight, bias)
        if kind in ACTIVATIONS:
            return self.job(F.gelu if kind == "gelu" else getattr(self.torch, kind), x)
        if kind == "rms_norm":
            return self.job(lambda x: F.rms_norm(x, size, weight, RMS_EPS), x)
        return self.job(lambda x: F.layer_norm(x, size, weight, bias, LAYER_EPS), x)

    def layer(self, kind, x, weights, heads, out):
        nn, d_model = self.torch.nn, x.shape[-1]
        if kind == "encoder":
            d_ff = len(weights["linear1.bias"])
            module = nn.TransformerEncoderLayer(
                d_model, heads, d_ff, activation="gelu", layer_norm_eps=LAYER_EPS, batch_first=True
            )
            call = module
        else:
            module = nn.MultiheadAttention(d_model, heads, batch_first=True)
            weights = without_prefix(weights)
            call = lambda x: module(x, x, x, need_weights=False)[0]  # noqa: E731
        module.load_state_dict({name: self.torch.from_numpy(array) for name, array in weights.items()})
        module.eval()
        return self.job(call, x)


class TorchFunctions(Torch):
    """linear and scaled_dot_product_attention, as models are written by hand."""

    def layer(self, kind, x, weights, heads, out):
        return self.job(layer_by_hand(self.torch, kind, weights, heads), x)


class TorchCompiled(TorchFunctions):
    """torch.compile: inductor's C++ code, weights frozen as constants and packed for oneDNN."""

    def job(self, call, x):
        self.torch.compiler.reset()  # shapes of earlier cases would make those of this one variable
        return super().job(self.torch.compile(call, dynamic=False, fullgraph=True), x)

    def norm(self, kind, x, weight, bias, out):
        F, size = self.torch.nn.functional, x.shape[-1:]
        weight, bias = self.tensors(weight, bias)

        class Norm(self.torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("weight", weight)
                self.register_buffer("bias", bias)

            def forward(self, x):
                if kind in ACTIVATIONS:
                    return F.gelu(x) if kind == "gelu" else getattr(x, kind)()
                if kind == "rms_norm":
                    return F.rms_norm(x, size, self.weight, RMS_EPS)
                return F.layer_norm(x, size, self.weight, self.bias, LAYER_EPS)

        return self.job(Norm().eval(), x)


def layer_by_hand(torch, kind: str, weights: dict[str, np.ndarray], heads: int):
    """A module, since only what a module holds counts as constant when it is compiled."""
    F = torch.nn.functional

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for name, array in weights.items():
                self.register_buffer(name.replace(".", "_"), torch.from_numpy(array))

        def attention(self, x):
            batch, length, d_model = x.shape
            mixed = F.linear(x, self.self_attn_in_proj_weight, self.self_attn_in_proj_bias)
            q, k, v = mixed.view(batch, length, 3, heads, d_model // heads).permute(2, 0, 3, 1, 4)
            attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, d_model)
            return F.linear(attended, self.self_attn_out_proj_weight, self.self_attn_out_proj_bias)

        def norm(self, x, weight, bias):
            return F.layer_norm(x, x.shape[-1:], weight, bias, LAYER_EPS)

        def forward(self, x):
            if kind == "attention":
                return self.attention(x)
            x = self.norm(x + self.attention(x), self.norm1_weight, self.norm1_bias)
            hidden = F.gelu(F.linear(x, self.linear1_weight, self.linear1_bias))
            more = F.linear(hidden, self.linear2_weight, self.linear2_bias)
            return self.norm(x + more, self.norm2_weight, self.norm2_bias)

    return Layer().eval()
