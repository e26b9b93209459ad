"""headlane.torch.optimize() of whole models: the results of PyTorch, the same tokens, the same bits alone
and in a batch, before and after a cache.
"""

import copy
import os
import threading

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
import headlane.torch  # noqa: E402
from decoder_cases import CACHE  # noqa: E402
from headlane.torch._report import Record  # noqa: E402

transformers.logging.set_verbosity_error()
SMALL = {
    "vocab_size": 200,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
T5 = {
    "vocab_size": 200,
    "decoder_start_token_id": 0,
    "d_model": 48,
    "d_kv": 12,
    "d_ff": 96,
    "num_layers": 2,
    "num_heads": 4,
}
MODELS = {
    "bert": ("BertModel", "BertConfig", SMALL),
    "llama": ("LlamaForCausalLM", "LlamaConfig", {**SMALL, "num_key_value_heads": 2}),
    "tied llama": ("LlamaForCausalLM", "LlamaConfig", {**SMALL, "tie_word_embeddings": True}),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", {**SMALL, "num_key_value_heads": 2, "head_dim": 12}),
    "gpt2": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {"vocab_size": 200, "n_embd": 48, "n_layer": 2, "n_head": 4, "bos_token_id": 1, "eos_token_id": 2},
    ),
    "t5": ("T5ForConditionalGeneration", "T5Config", {**T5, "feed_forward_proj": "gated-gelu"}),
    "whisper": (
        "WhisperModel",
        "WhisperConfig",
        {
            "vocab_size": 200,
            "d_model": 48,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 96,
            "decoder_ffn_dim": 96,
            "max_source_positions": 20,
            "num_mel_bins": 8,
            "pad_token_id": 0,
            "decoder_start_token_id": 1,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
    "vit": (
        "ViTModel",
        "ViTConfig",
        {
            "hidden_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 96,
            "image_size": 16,
            "patch_size": 4,
        },
    ),
}
GENERATE = ("llama", "tied llama", "gemma", "gpt2", "t5")
IDS = torch.arange(3, 21).view(2, 9)


def made(name):
    kind, config, options = MODELS[name]
    torch.manual_seed(3)
    model = getattr(transformers, kind)(getattr(transformers, config)(**options)).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # attention that matters, biases that are not 0
            parameter.add_(torch.randn_like(parameter), alpha=0.05)
    return model


def inputs_of(name):
    if name == "vit":
        return {"pixel_values": torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))}
    if name == "whisper":
        features = torch.randn(2, 8, 40, generator=torch.Generator().manual_seed(1))
        return {"input_features": features, "decoder_input_ids": IDS}
    return {"input_ids": IDS, "decoder_input_ids": IDS} if name == "t5" else {"input_ids": IDS}


def run(model, **inputs):
    output = model(**inputs)
    return output.logits if "logits" in output else output.last_hidden_state


@pytest.fixture(scope="module", params=MODELS)
def pair(request):
    model = made(request.param)
    return request.param, model, headlane.torch.optimize(model)


@torch.no_grad()
def test_same_results(pair):
    name, model, optimized = pair
    expected, result = run(model, **inputs_of(name)), run(optimized, **inputs_of(name))
    assert (result - expected).abs().max() <= 1e-5 * max(1, expected.abs().max())
    assert any(row.what == "fused" for row in Record.of(optimized).rows)
    assert any("→ headlane" in row.what for row in Record.of(optimized).rows)


@torch.no_grad()
def test_restored(pair):
    name, model, optimized = pair
    restored = copy.deepcopy(optimized)
    headlane.torch.restore(restored)
    assert restored.config._attn_implementation == model.config._attn_implementation
    assert run(restored, **inputs_of(name)).equal(run(model, **inputs_of(name)))
    assert run(optimized, **inputs_of(name)).isfinite().all()


@torch.no_grad()
def test_compiled(pair):
    name, _, optimized = pair
    torch._dynamo.reset()
    compiled = torch.compile(optimized, fullgraph=True, backend="aot_eager")
    assert run(compiled, **inputs_of(name)).equal(run(optimized, **inputs_of(name)))


@torch.no_grad()
def test_saved_as_any_model(pair, tmp_path):
    """save_pretrained() writes what it wrote before, and from_pretrained() reads it."""
    name, model, optimized = pair
    optimized.save_pretrained(tmp_path / "ours")
    model.save_pretrained(tmp_path / "theirs")
    ours = (tmp_path / "ours" / "model.safetensors").read_bytes()
    assert ours == (tmp_path / "theirs" / "model.safetensors").read_bytes()
    loaded = type(model).from_pretrained(tmp_path / "ours").eval()
    assert run(loaded, **inputs_of(name)).equal(run(model, **inputs_of(name)))


@pytest.mark.parametrize("name", GENERATE)
@pytest.mark.parametrize(
    "options", [{}, {"num_beams": 3}, {"cache_implementation": "static", "disable_compile": True}], ids=str
)
@torch.no_grad()
def test_the_same_tokens(name, options):
    model = made(name)
    optimized = headlane.torch.optimize(model)
    mask = torch.ones_like(IDS)
    mask[0, :3] = 0
    if name == "t5":
        mask = mask.flip(1)
    options = {"max_new_tokens": 12, "do_sample": False, "attention_mask": mask, "pad_token_id": 0, **options}
    assert optimized.generate(IDS, **options).equal(model.generate(IDS, **options))


@pytest.mark.parametrize("name", ["llama", "tied llama", "gemma", "gpt2"])
@torch.no_grad()
def test_prefill_equals_decode(name):
    """Logits have the same bits for a prompt at once and token by token from a cache, alone, in a batch,
    and with padding on the left.
    """
    optimized = headlane.torch.optimize(made(name))
    whole = optimized(IDS).logits
    cache, steps = None, []
    for i in range(IDS.shape[1]):
        output = optimized(IDS[:, i : i + 1], **{CACHE: cache}, use_cache=True)
        cache = output[CACHE]
        steps.append(output.logits)
    assert torch.cat(steps, 1).equal(whole)
    assert optimized(IDS[1:]).logits.equal(whole[1:])
    padded = torch.cat((torch.zeros(2, 4, dtype=torch.long), IDS), 1)
    mask = (padded != 0).long()
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    result = optimized(padded, attention_mask=mask, position_ids=positions).logits
    assert result[:, 4:].equal(whole)


@torch.no_grad()
def test_a_sentence_alone_and_in_a_batch():
    optimized = headlane.torch.optimize(made("bert"))
    mask = torch.ones_like(IDS)
    mask[0, 5:] = 0
    batch = run(optimized, input_ids=IDS, attention_mask=mask)
    alone = run(optimized, input_ids=IDS[:1, :5])
    assert batch[:1, :5].equal(alone)
    mask = torch.ones(1, 5, dtype=torch.long)
    assert run(optimized, input_ids=IDS[:1, :5], attention_mask=mask).equal(alone)


@pytest.mark.parametrize("weights", ["bfloat16", "int8"])
@torch.no_grad()
def test_fewer_bits(weights):
    for name in ("bert", "llama"):
        model = made(name)
        optimized = headlane.torch.optimize(model, weights, release=True)
        result, expected = run(optimized, input_ids=IDS), run(model, input_ids=IDS)
        cosine = torch.nn.functional.cosine_similarity(result.flatten(), expected.flatten(), dim=0)
        assert 0.999 < cosine < 1


@torch.no_grad()
def test_bfloat16_model():
    model = made("llama").bfloat16()
    optimized = headlane.torch.optimize(model)
    result = run(optimized, input_ids=IDS)
    wide = run(model.float(), input_ids=IDS)
    assert result.dtype == torch.bfloat16
    assert (result - wide).abs().max() < 0.05 * wide.abs().max()


def test_training():
    """As the model itself, up to what is frozen: the original code, dropout and gradients included."""
    model = made("bert")
    optimized = headlane.torch.optimize(model).train()
    model.train()
    results = []
    for each in (model, optimized):
        embedded = each.embeddings.word_embeddings(IDS).detach().requires_grad_()
        torch.manual_seed(7)
        output = each(inputs_embeds=embedded).last_hidden_state
        output.square().mean().backward()
        results.append((output.detach(), embedded.grad))
    for ours, theirs in zip(*results):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_attention_that_is_not_headlanes():
    """An implementation that was asked for by name stays."""
    model = made("llama")
    model.set_attn_implementation("flex_attention")
    optimized = headlane.torch.optimize(model)
    assert optimized.config._attn_implementation == "flex_attention"


@torch.no_grad()
def test_many_threads_and_fork():
    optimized = headlane.torch.optimize(made("llama"))
    expected = run(optimized, input_ids=IDS)
    found = []

    def work():
        with torch.no_grad():
            found.append(run(optimized, input_ids=IDS).equal(expected))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # PyTorch's own threads do not survive a fork
    try:
        child = os.fork()
        if child == 0:
            same = run(optimized, input_ids=IDS).equal(expected)
            os._exit(0 if same else 1)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        torch.set_num_threads(before)
