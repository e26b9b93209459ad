"""Modules of PyTorch for the tests of headlane.torch."""

import torch
from torch import nn

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def normal(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def seeded(make, *arguments, **options):
    torch.manual_seed(1)
    model = make(*arguments, **options).eval()
    with torch.no_grad():  # biases and the weights of norms are not those of a new model
        for parameter in model.parameters():
            parameter.add_(0.1 * normal(*parameter.shape, seed=parameter.numel()))
    return model


class RmsNorm(nn.Module):
    """As Llama's."""

    def __init__(self, width, eps=1e-6, offset=0.0):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.variance_epsilon = eps
        self.offset = offset

    def forward(self, x):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.variance_epsilon)
        return (wide * (self.weight.float() + self.offset)).to(x.dtype)


class WideLayerNorm(nn.Module):
    """As Cohere's: in float32, without a bias."""

    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.variance_epsilon = eps

    def forward(self, x):
        wide = x.float()
        wide = wide - wide.mean(-1, keepdim=True)
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.variance_epsilon)
        return (wide * self.weight.float()).to(x.dtype)


class LayerNormOfWeightPlusOne(nn.LayerNorm):
    """As Nemotron's."""

    def forward(self, x):
        return nn.functional.layer_norm(x, self.normalized_shape, self.weight + 1, self.bias, self.eps)


class GatedMlp(nn.Module):
    """As Llama's."""

    def __init__(self, width=24, hidden=40):
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)
        self.act = nn.SiLU()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.down(self.act(self.gate(x)) * self.up(x)))


class Output(nn.Module):
    """As BERT's: a product, the residual, a norm."""

    def __init__(self, width=24):
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, hidden, residual):
        return self.norm(self.dropout(self.dense(hidden)) + residual)


class Attention(nn.Module):
    """As timm's."""

    def __init__(self, width=24, heads=3):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x, mask=None, is_causal=False):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=is_causal)
        return self.proj(y.transpose(1, 2).flatten(2))


class NormWithoutWeight(nn.Module):
    """As OLMo's."""

    def __init__(self, width):
        super().__init__()
        self.normalized_shape = (width,)

    def forward(self, x):
        return nn.functional.layer_norm(x.float(), self.normalized_shape, None, None, 1e-5).to(x.dtype)


class RmsNormWithoutWeight(nn.Module):
    """Of any width, as NanoChat's."""

    def __init__(self, eps=1e-6):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)).to(x.dtype)


class GeluProjection(nn.Module):
    """As diffusers' GELU."""

    def __init__(self, width, hidden):
        super().__init__()
        self.proj = nn.Linear(width, hidden)

    def gelu(self, gate):
        if gate.device.type == "mps":
            return nn.functional.gelu(gate.float()).to(gate.dtype)
        return nn.functional.gelu(gate)

    def forward(self, x):
        return self.gelu(self.proj(x))


class FeedForward(nn.Module):
    """As diffusers'."""

    def __init__(self, width=24, hidden=40):
        super().__init__()
        parts = GeluProjection(width, hidden), nn.Dropout(0.1), nn.Linear(hidden, width)
        self.net = nn.ModuleList(parts)

    def forward(self, x, *args, **kwargs):
        for module in self.net:
            x = module(x)
        return x


class Processor:
    """What an attention of diffusers calls."""

    def __call__(self, module, x):
        q, k, v = (y.unflatten(-1, (module.heads, -1)).transpose(1, 2) for y in module.qkv(x).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(query=q, key=k, value=v)
        return module.proj(y.transpose(1, 2).flatten(2))


class ProcessedAttention(nn.Module):
    def __init__(self, width=24, heads=3):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.processor = Processor()

    def forward(self, x):
        return self.processor(self, x)


class DiffusionBlock(nn.Module):
    """As those of diffusers' transformers: norms without weights, scaled and shifted by what a vector says."""

    def __init__(self, width=24):
        super().__init__()
        self.modulation = nn.Linear(width, 4 * width)
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False)
        self.attn = ProcessedAttention(width)
        self.ff = FeedForward(width)

    def forward(self, x, vector):
        scale1, shift1, scale2, shift2 = self.modulation(vector).unsqueeze(1).chunk(4, -1)
        x = x + self.attn(self.norm1(x) * (1 + scale1) + shift1)
        return x + self.ff(self.norm2(x) * (1 + scale2) + shift2)


class Tied(nn.Module):
    """An embedding whose weight is that of the output layer."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 24)
        self.mlp = nn.Sequential(nn.Linear(24, 40), nn.GELU("tanh"), nn.Linear(40, 24))
        self.head = nn.Linear(24, 50, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids):
        return self.head(self.mlp(self.embedding(ids)))


X = normal(2, 5, 24)
MODELS = {
    "linear": (lambda: nn.Linear(24, 33), (X,)),
    "linear without bias": (lambda: nn.Linear(24, 1, bias=False), (X,)),
    "linear of a vector": (lambda: nn.Linear(24, 33), (X[0, 0],)),
    "layer norm": (lambda: nn.LayerNorm(24), (X,)),
    "layer norm without bias": (lambda: nn.LayerNorm(24, bias=False), (X,)),
    "layer norm without weight": (lambda: nn.LayerNorm(24, elementwise_affine=False), (X,)),
    "layer norm of OLMo": (lambda: NormWithoutWeight(24), (X,)),
    "layer norm of Cohere": (lambda: WideLayerNorm(24), (X,)),
    "layer norm of Nemotron": (lambda: LayerNormOfWeightPlusOne(24), (X,)),
    "rms norm": (lambda: nn.RMSNorm(24), (X,)),
    "rms norm without weight": (lambda: nn.RMSNorm(24, elementwise_affine=False), (X,)),
    "rms norm of NanoChat": (RmsNormWithoutWeight, (X,)),
    "rms norm of Llama": (lambda: RmsNorm(24), (X,)),
    "rms norm of Gemma": (lambda: RmsNorm(24, offset=1.0), (X,)),
    "activation": (
        lambda: nn.Sequential(nn.Linear(24, 24), nn.Dropout(0.5), nn.Linear(24, 24), nn.SiLU()),
        (X,),
    ),
    "sequential": (
        lambda: nn.Sequential(nn.Linear(24, 40), nn.GELU(), nn.Linear(40, 24), nn.LayerNorm(24)),
        (X,),
    ),
    "gated": (GatedMlp, (X,)),
    "output": (Output, (X, normal(2, 5, 24, seed=1))),
    "attention": (Attention, (X,)),
    "diffusion block": (DiffusionBlock, (X, normal(2, 24, seed=3))),
    "tied": (Tied, (torch.arange(14).view(2, 7),)),
    "multihead attention": (lambda: nn.MultiheadAttention(24, 3, batch_first=True), (X, X, X)),
    "encoder layer": (lambda: nn.TransformerEncoderLayer(24, 3, 40, batch_first=True), (X,)),
    "encoder": (
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(24, 3, 40, activation="gelu", batch_first=True), 2
        ),
        (X,),
    ),
    "decoder layer": (
        lambda: nn.TransformerDecoderLayer(24, 3, 40, norm_first=True),
        (X, normal(3, 5, 24, seed=2)),
    ),
}
# The modules of each of them that are not replaced: they do nothing but call others.
LEFT = (nn.Sequential, nn.ModuleList, nn.Dropout, Tied, DiffusionBlock)
# Those whose code calls activations, which torch.compile leaves to PyTorch.
CALLS_ACTIVATIONS = DiffusionBlock


def run(model, inputs):
    y = model(*inputs)
    return y[0] if isinstance(y, tuple) else y


def close(ours, theirs, dtype=torch.float32):
    tolerance = {torch.float32: 2e-6, torch.bfloat16: 3e-2, torch.float16: 4e-3}[dtype]
    scale = max(1.0, theirs.abs().max().item())
    assert ours.dtype == theirs.dtype
    assert (ours.float() - theirs.float()).abs().max().item() <= tolerance * scale
