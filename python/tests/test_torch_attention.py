"""headlane.torch: torch.nn.MultiheadAttention with all its masks, encoders, and attention in code of a model."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
import headlane.torch  # noqa: E402
from expert_cases import LATENT, LLAMA, SIZES  # noqa: E402
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


# Attention with what PyTorch's does not have, and keys that the code of a model chooses.
CODES = {
    "Llama": LLAMA,
    "GptOss": {**LLAMA, "num_local_experts": 4, "head_dim": 8},  # sinks
    "Gemma2": {**LLAMA, "head_dim": 8, "sliding_window": 4, "attn_logit_softcapping": 0.5},
    "DeepseekV32": {
        **{**LATENT, "num_key_value_heads": 4, "index_n_heads": 2, "index_head_dim": 8, "index_topk": 3},
    },
    "T5": {**SIZES, "d_model": 32, "d_kv": 8, "d_ff": 40, "num_layers": 2, "num_heads": 4},  # position biases
}


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("name", CODES)
def test_training_gradients_and_autocast_have_the_attention_of_the_model(name, implementation):
    config = getattr(transformers, f"{name}Config", None)
    if config is None:
        pytest.skip(f"this transformers has no {name}")
    kind = transformers.AutoModelForSeq2SeqLM if name == "T5" else transformers.AutoModelForCausalLM
    model = seeded(kind.from_config, config(**CODES[name]))
    try:
        model.set_attn_implementation(implementation)
    except ValueError:
        pytest.skip(f"{name} has no {implementation}")
    optimized = headlane.torch.optimize(model)
    ids = torch.arange(3, 21).view(2, 9)
    mask = torch.ones_like(ids)
    mask[0, :4] = 0
    given = {"attention_mask": mask, **({"decoder_input_ids": ids} if name == "T5" else {})}

    def results(each, **options):
        embedded = each.get_input_embeddings()(ids).detach().requires_grad_()
        made = each(inputs_embeds=embedded, **given, **options).logits
        made.square().mean().backward()
        return made.detach()[1], embedded.grad[1]

    def no_gradients(each):
        with torch.no_grad():
            return each(input_ids=ids, **given).logits[1:]

    for ours, theirs in zip(results(optimized), results(model)):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(no_gradients(optimized), no_gradients(model), rtol=0.02, atol=0.02)
    for each in (model, optimized):
        each.train()
    torch.manual_seed(3)
    expected = no_gradients(model)
    torch.manual_seed(3)
    torch.testing.assert_close(no_gradients(optimized), expected, rtol=1e-4, atol=1e-5)


def test_gradients_of_a_model_whose_eager_attention_has_a_name_of_its_own():
    config = transformers.Phi4MultimodalVisionConfig(
        hidden_size=32,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=28,
        crop_size=28,
        feature_layer=-2,
    )
    model = seeded(transformers.Phi4MultimodalVisionModel._from_config, config, attn_implementation="eager")
    optimized = headlane.torch.optimize(model)
    gradients = []
    for each in (model, optimized):
        pixels = normal(1, 3, 28, 28).requires_grad_()
        mask = torch.ones(1, 2, 2, dtype=torch.bool)
        each(pixels, patch_attention_mask=mask).last_hidden_state.square().mean().backward()
        gradients.append(pixels.grad)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-5)
