"""headlane.torch: torch.nn.MultiheadAttention with all its masks, encoders, and attention in code of a model."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import headlane.torch  # noqa: E402
from torch import nn  # noqa: E402
from torch_cases import Attention, X, close, normal, seeded  # noqa: E402

MASKS = {
    "none": lambda: None,
    "bool": lambda: normal(5, 7) > 0.5,
    "float": lambda: normal(5, 7),
    "heads": lambda: normal(6, 5, 7) > 0.5,
    "float heads": lambda: normal(6, 5, 7),
}
PADDING = {
    "none": lambda: None,
    "bool": lambda: torch.arange(7) >= torch.tensor([[5], [7]]),
    "float": lambda: normal(2, 7, seed=2),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("padding", PADDING)
@pytest.mark.parametrize("need_weights", [False, True])
@torch.no_grad()
def test_multihead_attention(mask, padding, need_weights):
    query, key, value = normal(2, 5, 24), normal(2, 7, 24, seed=1), normal(2, 7, 24, seed=2)
    options = {
        "attn_mask": MASKS[mask](),
        "key_padding_mask": PADDING[padding](),
        "need_weights": need_weights,
        "average_attn_weights": mask != "heads",
    }
    if options["attn_mask"] is not None and options["attn_mask"].dtype == torch.bool:
        options["attn_mask"][..., 0] = False  # PyTorch's result of a row without keys is NaN
    for batch_first in (True, False):
        model = seeded(nn.MultiheadAttention, 24, 3, batch_first=batch_first)
        inputs = [x if batch_first else x.transpose(0, 1) for x in (query, key, value)]
        expected = model(*inputs, **options)
        result = headlane.torch.optimize(model)(*inputs, **options)
        close(result[0], expected[0])
        assert (result[1] is None) == (expected[1] is None)
        if need_weights:
            close(result[1], expected[1])


@torch.no_grad()
def test_multihead_attention_of_other_forms():
    causal = nn.Transformer.generate_square_subsequent_mask(5)
    for options, inputs, call in (
        ({"kdim": 10, "vdim": 12}, (normal(2, 5, 24), normal(2, 7, 10), normal(2, 7, 12)), {}),
        ({"bias": False}, (X, X, X), {"attn_mask": causal, "is_causal": True, "need_weights": False}),
        ({}, (X, X, X), {"attn_mask": causal, "is_causal": True}),
        ({}, (X[0], X[0], X[0]), {}),
        ({"add_bias_kv": True}, (X, X, X), {}),
        ({"add_zero_attn": True}, (X, X, X), {}),
    ):
        model = seeded(nn.MultiheadAttention, 24, 3, batch_first=True, **options)
        expected = model(*inputs, **call)
        result = headlane.torch.optimize(model)(*inputs, **call)
        close(result[0], expected[0])
        if expected[1] is not None:
            close(result[1], expected[1])


@pytest.mark.parametrize("norm", [False, True])
@torch.no_grad()
def test_encoder_with_padding(norm):
    """PyTorch makes nested tensors of some batches: rows of padding are 0 then."""
    layer = nn.TransformerEncoderLayer(24, 4, 40, batch_first=True)
    model = seeded(nn.TransformerEncoder, layer, 2, nn.LayerNorm(24) if norm else None)
    optimized = headlane.torch.optimize(model)
    padding = torch.arange(5) >= torch.tensor([[3], [5]])
    for mask in (padding, padding.flip(1), padding.float().masked_fill(padding, -torch.inf)):
        close(optimized(X, src_key_padding_mask=mask), model(X, src_key_padding_mask=mask))
    expected, result = (m(X, src_key_padding_mask=padding) for m in (model, optimized))
    assert norm or (expected[padding] == 0).all()
    assert result[0, :3].equal(optimized(X[:1, :3])[0])
    headlane.torch.restore(optimized)
    assert optimized(X, src_key_padding_mask=padding).equal(expected)


@torch.no_grad()
def test_attention_that_a_model_calls():
    model = seeded(Attention)
    optimized = headlane.torch.optimize(model)
    for options in ({"is_causal": True}, {"mask": normal(5, 5) > -1}, {"mask": normal(2, 3, 5, 5)}):
        close(optimized(X, **options), model(X, **options))
    alone = optimized(X[:1])
    torch.testing.assert_close(optimized(X)[:1], alone, rtol=0, atol=0)


@pytest.mark.parametrize("heads_last", [False, True])
@torch.no_grad()
def test_results_lie_in_memory_as_those_of_pytorch(heads_last):
    """Code may take views of them."""

    class Called(nn.Module):
        def forward(self, x):
            given = x.transpose(1, 2) if heads_last else x
            return nn.functional.scaled_dot_product_attention(given, given, given)

    class Activated(nn.Sequential):
        def forward(self, x):
            return self[1](self[0](x).transpose(1, 2))

    x = normal(2, 5, 3, 24)
    called, activated = Called().eval(), seeded(lambda: Activated(nn.Linear(24, 24), nn.GELU()))
    for model, given in ((called, x), (activated, X)):
        optimized, expected = headlane.torch.optimize(model), model(given)
        close(optimized(given), expected)
        assert optimized(given).stride() == expected.stride()
        compiled = torch.compile(optimized, fullgraph=True, backend="aot_eager")
        assert compiled(given).stride() == expected.stride()
    attention = seeded(nn.MultiheadAttention, 24, 3)
    result, _ = headlane.torch.optimize(attention)(X, X, X)
    assert result.stride() == attention(X, X, X)[0].stride()


@torch.no_grad()
def test_multihead_attention_reads_its_output_layer():
    """It does not call it: hooks and wrappers have no effect, their parameters have."""

    class Wrapper(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner, self.weight, self.bias = inner, nn.Parameter(2 * inner.weight), None

        def forward(self, x):
            return 0 * self.inner(x)

    model = seeded(nn.MultiheadAttention, 24, 3, batch_first=True)
    optimized, called = headlane.torch.optimize(model), []
    for each in (model, optimized):
        each.out_proj.register_forward_hook(lambda *given: called.append(given))
    close(optimized(X, X, X)[0], model(X, X, X)[0])
    assert not called
    model.out_proj = Wrapper(model.out_proj)
    close(headlane.torch.optimize(model)(X, X, X)[0], model(X, X, X)[0])


@torch.no_grad()
def test_multihead_attention_that_is_changed():
    for change in (
        {"add_zero_attn": True},
        {"bias_k": nn.Parameter(normal(1, 1, 24)), "bias_v": nn.Parameter(normal(1, 1, 24, seed=1))},
    ):
        model = seeded(nn.MultiheadAttention, 24, 3)
        optimized = headlane.torch.optimize(model)
        for each in (model, optimized):
            for name, value in change.items():
                setattr(each, name, value)
        close(optimized(X, X, X)[0], model(X, X, X)[0])


@pytest.mark.parametrize("batch_first", [False, True])
@torch.no_grad()
def test_shapes_that_multihead_attention_refuses(batch_first):
    model = seeded(nn.MultiheadAttention, 24, 3, batch_first=batch_first)
    optimized = headlane.torch.optimize(model)
    x, keys = (x if batch_first else x.transpose(0, 1) for x in (X, normal(2, 7, 24)))
    one = keys[:1] if batch_first else keys[:, :1]
    for given, options in (
        ((x, one, one), {}),
        ((x, keys, x), {}),
        ((x, keys, keys), {"attn_mask": torch.zeros(1, 7)}),
        ((x, keys, keys), {"attn_mask": torch.zeros(1, 5, 7)}),
        ((x, keys, keys), {"key_padding_mask": torch.zeros(2, 1).bool()}),
        ((x, keys, keys), {"key_padding_mask": torch.zeros(1, 7).bool()}),
    ):
        for each in (model, optimized):
            with pytest.raises((RuntimeError, AssertionError)):
                each(*given, **options)
