"""The layers against torch.nn in float64, from state_dict() as it is.

Our error, the root of its mean square over 128 rows and more, is at most twice PyTorch's own in float32."""

import headlane
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn


def rows(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def randomized(module, seed=1):
    """Weights of every parameter, biases and norms too: torch begins with zeros and ones."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in module.named_parameters():
            p.add_(torch.randn(p.shape, generator=generator) * (0.3 if p.ndim == 1 else 0.02))
            assert name
    return module.eval()


WORST = {}


def compare(name, ours, module, *inputs, **options):
    """Against the module in float64, beside the module in float32."""

    def run(dtype):
        def cast(x):
            return x.to(dtype) if torch.is_tensor(x) and x.is_floating_point() else x

        with torch.no_grad():
            y = module.to(dtype)(*map(cast, inputs), **{k: cast(v) for k, v in options.items()})
        return y[0] if isinstance(y, tuple) else y

    exact, theirs = run(torch.float64), run(torch.float32)
    assert type(ours) is torch.Tensor
    assert ours.shape == exact.shape
    error, of_torch = ((y.double() - exact).square().mean().sqrt().item() for y in (ours, theirs))
    name += f" {inputs[0].shape[-1]}"
    assert exact.shape[:-1].numel() >= 128
    WORST[name] = max(WORST.get(name, 0), error / of_torch)
    assert error <= 2 * of_torch, f"{name}: {error} beside {of_torch}"


SHAPES = [(1, 130), (4, 33), (130, 1)]
SIZES = [(32, 4, 64), (48, 3, 100), (512, 8, 2048), (40, 5, 33)]


@pytest.mark.parametrize(("batch", "length"), SHAPES)
@pytest.mark.parametrize(
    ("d_in", "d_out", "bias"), [(16, 48, True), (512, 64, False), (33, 7, True), (700, 300, True)]
)
def test_linear(batch, length, d_in, d_out, bias):
    module, x = randomized(nn.Linear(d_in, d_out, bias=bias)), rows(batch, length, d_in)
    layer = headlane.Linear(module.state_dict())
    assert (layer.in_features, layer.out_features) == (d_in, d_out)
    compare("Linear", layer(x), module, x)
    residual = rows(batch, length, d_out, seed=2)
    whole = nn.Sequential(module, nn.GELU())
    compare("Linear, gelu", layer.forward(x, activation="gelu", residual=residual) - residual, whole, x)


def test_embedding():
    module = nn.Embedding(50, 24)
    ids = torch.randint(50, (3, 17), generator=torch.Generator().manual_seed(3))
    for tied in (False, True):
        layer = headlane.Embedding(module.state_dict(), tied=tied)
        assert (layer.num_embeddings, layer.embedding_dim) == (50, 24)
        with torch.no_grad():
            wanted = module(ids)
        np.testing.assert_array_equal(layer(ids), wanted)
        np.testing.assert_array_equal(layer(ids[0].tolist()), wanted[0])
        np.testing.assert_array_equal(layer(ids.int(), scale=2.0), 2 * wanted)
        out = wanted.clone()
        assert layer(ids, add=True, out=out) is out
        np.testing.assert_array_equal(out, 2 * wanted)
    short = headlane.Embedding(module.state_dict(), max_length=5)
    np.testing.assert_array_equal(short(ids, truncate=True), wanted[:, :5])
    np.testing.assert_array_equal(short(ids[:, :2], truncate=True), wanted[:, :2])
    with pytest.raises(
        ValueError, match="Embedding.forward: ids has 17 tokens in a sequence, max_length is 5"
    ):
        short(ids)
    x = rows(8, 20, 24)
    output = nn.Linear(24, 50, bias=False)
    output.weight = module.weight
    compare("logits", layer.logits(x), output, x)


MASKS = ["none", "causal", "padding", "float mask", "both"]


def masks(kind, batch, length, keys, seed=5):
    """Options of torch's modules, with the names of TransformerEncoderLayer, and ours."""
    generator = torch.Generator().manual_seed(seed)
    theirs, ours = {}, {}
    if kind in ("causal", "both"):
        theirs["mask"] = torch.ones(length, keys).triu(1).bool()
        ours["is_causal"] = True
    if kind in ("padding", "both"):
        lengths = torch.randint(1, keys + 1, (batch,), generator=generator)
        theirs["padding"] = torch.arange(keys) >= lengths[:, None]
        ours["key_lengths"] = lengths
    if kind == "float mask":
        theirs["mask"] = torch.randn(length, keys, generator=generator)
        ours["attn_mask"] = theirs["mask"]
    return theirs, ours


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize(("batch", "length"), SHAPES)
@pytest.mark.parametrize(
    ("d_model", "heads", "bias", "width"),
    [(32, 4, True, None), (60, 3, False, 20), (512, 8, True, None), (66, 2, True, 35)],
)
def test_multi_head_attention(kind, batch, length, d_model, heads, bias, width):
    module = nn.MultiheadAttention(d_model, heads, bias=bias, kdim=width, vdim=width, batch_first=True)
    randomized(module)
    layer = headlane.MultiHeadAttention(module.state_dict(), num_heads=heads)
    assert (layer.d_model, layer.num_heads, layer.num_kv_heads) == (d_model, heads, heads)
    assert layer.head_dim == d_model // heads
    x, keys = rows(batch, length, d_model), length if width is None else 50
    memory = x if width is None else rows(batch, keys, width, seed=6)
    theirs, ours = masks(kind, batch, length, keys)
    options = {
        "need_weights": False,
        "attn_mask": theirs.get("mask"),
        "key_padding_mask": theirs.get("padding"),
    }
    got = layer(x, **ours) if width is None else layer(x, memory, **ours)
    compare("MultiHeadAttention", got, module, x, memory, memory, **options)


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize(("norm_first", "activation"), [(False, "relu"), (True, "gelu")])
@pytest.mark.parametrize(("d_model", "heads", "d_ff"), SIZES)
def test_encoder_layer(kind, norm_first, activation, d_model, heads, d_ff):
    settings = {"dim_feedforward": d_ff, "dropout": 0.0, "activation": activation, "norm_first": norm_first}
    module = nn.TransformerEncoderLayer(d_model, heads, batch_first=True, layer_norm_eps=1e-6, **settings)
    randomized(module)
    layer = headlane.EncoderLayer(
        module.state_dict(),
        num_heads=heads,
        activation=activation,
        norm_first=norm_first,
        layer_norm_eps=1e-6,
    )
    assert layer.d_model == d_model
    for batch, length in SHAPES if d_model < 500 else SHAPES[1:2]:
        x = rows(batch, length, d_model)
        theirs, ours = masks(kind, batch, length, length)
        options = {"src_mask": theirs.get("mask"), "src_key_padding_mask": theirs.get("padding")}
        module.train()  # no dropout; the fast path of eval() knows other rules for padding
        compare("EncoderLayer", layer(x, **ours), module, x, **options)


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize(("d_model", "heads", "d_ff"), SIZES)
def test_decoder_layer(kind, norm_first, d_model, heads, d_ff):
    module = nn.TransformerDecoderLayer(
        d_model, heads, d_ff, dropout=0.0, batch_first=True, norm_first=norm_first
    )
    randomized(module)
    stack = nn.ModuleDict({"layers": nn.ModuleList([nn.Linear(2, 2), module])})
    layer = headlane.DecoderLayer(stack.state_dict(), "layers.1.", num_heads=heads, norm_first=norm_first)
    for batch, length in SHAPES if d_model < 500 else SHAPES[1:2]:
        x, memory = rows(batch, length, d_model), rows(batch, 21, d_model, seed=7)
        theirs, ours = masks(kind, batch, length, length)
        of_memory, cross = masks("padding", batch, length, 21, seed=8)
        options = {"tgt_mask": theirs.get("mask"), "tgt_key_padding_mask": theirs.get("padding")}
        options["memory_key_padding_mask"] = of_memory["padding"]
        ours.setdefault("is_causal", False)
        compare("DecoderLayer", layer(x, memory, cross=cross, **ours), module, x, memory, **options)


@pytest.mark.parametrize("gated", [False, True])
def test_feed_forward(gated):
    names = ["linear1", "linear2"] + ["linear_gate"] * gated

    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            for name in names:
                setattr(self, name, nn.Linear(90, 40) if name == "linear2" else nn.Linear(40, 90))

        def forward(self, x):
            hidden = self.linear1(x)
            silu = nn.functional.silu
            return self.linear2(silu(self.linear_gate(x)) * hidden if gated else silu(hidden))

    module, x = randomized(Module()), rows(5, 40, 40)
    layer = headlane.FeedForward(module.state_dict(), activation="silu")
    assert (layer.d_model, layer.d_ff) == (40, 90)
    compare("FeedForward", layer(x), module, x)


def test_worst(report):
    for name, ratio in sorted(WORST.items()):
        report(f"layers, {name}: error at most {ratio:.2f} times PyTorch's")
