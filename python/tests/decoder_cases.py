"""What tests of decoders in headlane.torch have in common: models, comparisons, and whether caches had room."""

import inspect

import torch
import transformers
from headlane.torch import _fused
from headlane.torch._cache import GROWING
from torch_cases import seeded
from transformers.models.llama import modeling_llama

transformers.logging.set_verbosity_error()
# What models call the cache that they are given, which changed in transformers 5.24.
_FORWARD = inspect.signature(transformers.LlamaForCausalLM.forward)
CACHE = "cache" if "cache" in _FORWARD.parameters else "past_key_values"
SPECIAL = {"vocab_size": 50, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
LLAMA = {**SIZES, **SPECIAL, "num_key_value_heads": 2}
GPT2 = {**SPECIAL, "n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 64}
OPT = {**SPECIAL, "hidden_size": 24, "ffn_dim": 40, "num_hidden_layers": 2, "num_attention_heads": 3}
LAYER_TYPES = ["sliding_attention", "full_attention"]
PARTIAL = {"partial_rotary_factor": 0.75}
SCALED = {  # the factor is more than 1 from position 4 on
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 2.0,
    "llama_4_scaling_beta": 0.3,
    "original_max_position_embeddings": 4,
}
EXPERTS = {  # each token takes all: which ones it took would depend on a rounding
    "moe_intermediate_size": 24,
    "num_experts": 4,
    "num_experts_per_tok": 4,
}
GPT_OSS = {
    "head_dim": 8,
    "num_local_experts": 4,
    "num_experts_per_tok": 4,
    "sliding_window": 5,
    "layer_types": LAYER_TYPES,
}
LLAMA4 = {
    "head_dim": 8,
    "intermediate_size_mlp": 40,
    "moe_layers": [],
    "no_rope_layers": [1, 1],  # without them, queries depend on how many keys the cache has
    "attention_chunk_size": 5,
}
LLAMA4_EXPERTS = {"moe_layers": [0, 1], "num_local_experts": 2, "num_experts_per_tok": 2}
# Calls in the plan of a layer: those before the attention, it with its cache, those after it; and
# a mixture, and those after it.
MODELS = {
    "Llama": (LLAMA, 3),
    "Mistral": (LLAMA, 3),
    "Qwen2": (LLAMA, 3),
    "Qwen3": ({**LLAMA, "head_dim": 8}, 3),
    "Qwen3_5Text": ({**LLAMA, "head_dim": 8, "layer_types": ["full_attention"] * 2}, 3),  # gated attention
    "Olmo": (LLAMA, 3),  # norms without weights
    "Olmo2": (LLAMA, 3),
    "Phi": ({**LLAMA, "head_dim": 8}, 3),  # turns half of each head
    "StableLm": ({**LLAMA, "use_qkv_bias": True}, 3),  # a quarter
    "Phi3": (LLAMA, 3),  # whose queries, keys and values are columns of one product
    "Phi3 partial": ({**LLAMA, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, **PARTIAL}}, 3),
    "Glm": ({**LLAMA, "head_dim": 8}, 3),  # interleaved pairs, of half of each head
    "Glm4": ({**LLAMA, "head_dim": 8}, 3),
    "Ernie4_5": (LLAMA, 3),
    "Helium": ({**LLAMA, "head_dim": 8}, 3),
    "Mistral window": ({**LLAMA, "sliding_window": 6}, 3),
    "Phi3 window": ({**LLAMA, "sliding_window": 10}, 3),
    "Gemma2": ({**LLAMA, "head_dim": 8, "sliding_window": 5}, 3),  # every second layer has a window
    "Gemma3Text": ({**LLAMA, "head_dim": 8, "sliding_window": 5, "layer_types": LAYER_TYPES}, 3),
    "GPT2": (GPT2, 3),
    "GPTBigCode": (GPT2, 3),  # one head of keys, with an axis of its own
    "GPTBigCode heads": ({**GPT2, "multi_query": False}, 3),
    "OPT": ({**OPT, "max_position_embeddings": 64, "word_embed_proj_dim": 24}, 3),
    "GPTNeoX": ({**SIZES, **SPECIAL, "rotary_pct": 0.5}, 3),  # all three are columns of each head
    "GPTNeoX after": ({**SIZES, **SPECIAL, "use_parallel_residual": False}, 3),
    "Persimmon": ({**SIZES, **SPECIAL}, 3),  # all three are parts of each head
    "Llama4Text": ({**LLAMA, **LLAMA4}, 5),  # complex numbers, of which both parts are taken first
    # Also a mixture whose experts remain PyTorch's, and whose result is flat.
    "Llama4Text experts": ({**LLAMA, **LLAMA4, **LLAMA4_EXPERTS}, 7),
    "Cohere": (LLAMA, 3),  # layer norms of its own
    "Cohere2": ({**LLAMA, "sliding_window": 5, "layer_types": LAYER_TYPES}, 3),
    "Nemotron": (LLAMA, 3),
    "NanoChat": (LLAMA, 3),  # turned backwards
    "Ministral3": ({**LLAMA, "head_dim": 8, "rope_parameters": SCALED}, 12),  # factors of queries, by PyTorch
    "Mixtral": ({**LLAMA, "num_local_experts": 2}, 5),
    "Qwen2Moe": ({**LLAMA, **EXPERTS, "shared_expert_intermediate_size": 20}, 5),
    "Qwen3Moe": ({**LLAMA, **EXPERTS, "head_dim": 8}, 5),
    "Olmoe": ({**LLAMA, **EXPERTS}, 5),
    # Sinks, halves with tables that have a number for each pair, twice by PyTorch, and a mixture
    # that returns two.
    "GptOss": ({**LLAMA, **GPT_OSS}, 7),
    "GraniteMoe": ({**LLAMA, "num_local_experts": 2, "residual_multiplier": 0.5}, 5),
}
if CACHE == "cache":  # before, their attention was their own
    WIDE = {**GPT2, "n_embd": 32, "n_head": 4, "rotary_dim": 4}
    MODELS["GPTJ"] = (WIDE, 3)  # tables have a number for each pair
    MODELS["CodeGen"] = (WIDE, 3)  # other heads than the product's columns
IDS = torch.arange(3, 21).view(2, 9)
PADDED = torch.tensor([[0] * 4 + [1] * 5, [1] * 9])
INPUTS = [{"input_ids": IDS}, {"input_ids": IDS, "attention_mask": PADDED}]
AVERAGES = ("Gemma2",)  # where nothing is visible, as for padding in a window; headlane.torch has zeros


def made(name):
    config = getattr(transformers, f"{name.split()[0]}Config")(**MODELS[name][0])
    return seeded(transformers.AutoModelForCausalLM.from_config, config)


def steps(model, given, cache=None, count=3):
    """Logits of a prompt and of tokens one by one, and the cache."""
    given, logits = dict(given), []
    cache = transformers.DynamicCache(config=model.config) if cache is None else cache
    for token in range(count + 1):
        logits.append(model(**given, **{CACHE: cache}, use_cache=True).logits)
        given["input_ids"] = torch.tensor([[7 + token], [8 + token]])
        if "attention_mask" in given:
            mask = given["attention_mask"]
            given["attention_mask"] = torch.cat((mask, mask.new_ones(2, 1)), 1)
    return logits, cache


def entries(cache):
    """Keys and values of the layers that have some."""
    return [x for layer in cache.layers if hasattr(layer, "keys") for x in (layer.keys, layer.values)]


def llama_with(kind):
    """A model whose layers have attention modules of this kind, made of the configuration and their number."""

    def build(config):
        model = transformers.LlamaForCausalLM(config)
        for number, layer in enumerate(model.model.layers):
            layer.self_attn = kind(config, number)
        return model

    return seeded(build, transformers.LlamaConfig(**{**LLAMA, "num_key_value_heads": 4}))


def attention_of(module, query, key, value, mask):
    """What the attention of transformers returns: results, [batch, length, heads, head_dim], and weights."""
    attention = modeling_llama.ALL_ATTENTION_FUNCTIONS.get_interface(
        module.config._attn_implementation, modeling_llama.eager_attention_forward
    )
    return attention(module, query, key, value, mask, dropout=0.0, scaling=0.3)


def runs_with_caches(monkeypatch):
    """A list to which plans are added that are run with a cache."""
    seen, run = [], _fused.Plan.run

    def watched(plan, inputs):
        if any(not isinstance(x, torch.Tensor) for x in inputs):
            seen.append(plan)
        return run(plan, inputs)

    monkeypatch.setattr(_fused.Plan, "run", watched)
    return seen


def same(one, other):
    return len(one) == len(other) and all(x.equal(y) for x, y in zip(one, other))


def close(one, other):
    for x, y in zip(one, other, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=2e-5)


def check_modules(monkeypatch, result, entries, steps, *arguments):
    """The logits of steps(), and what its cache has, are those of the modules one by one."""
    with monkeypatch.context() as context:
        context.setattr(_fused.Plan, "applies", lambda plan: not plan.is_deep)
        logits, cache = steps(*arguments)
    assert same(result[0], logits)
    assert same(entries(result[1]), entries(cache))


def real(tensors, given):
    """Of logits or entries of a cache what belongs to tokens, not to padding, whose rows attend to nothing."""
    mask = given.get("attention_mask")
    if mask is None or tensors[0].dim() == 4:
        return tensors if mask is None else [x[1:] for x in tensors]
    return [tensors[0][mask.bool()], *tensors[1:]]


def claims_in(context):
    """Whether each layer of a cache that was asked had room."""
    claims = []
    for kind in GROWING.values():

        def claim(layer, count, claim=kind.claim):
            made = claim(layer, count)
            claims.append(made is not None)
            return made

        context.setattr(kind, "claim", claim)
    return claims
