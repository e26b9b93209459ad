"""Small models of transformers with linear attention or causal convolutions, and calls of them with a cache."""

import inspect

import headlane.torch
import torch
import transformers
from decoder_cases import CACHE, SPECIAL
from headlane.torch import _recurrent
from headlane.torch._fused import Fused
from headlane.torch._plan import Plan
from headlane.torch._recurrent_calls import CallsRecurrent

SIZES = {**SPECIAL, "hidden_size": 32, "num_hidden_layers": 4, "intermediate_size": 40}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
LINEAR = {"linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_num_value_heads": 4}
GATED = {**SIZES, **HEADS, **LINEAR, "linear_value_head_dim": 12}
KIMI = {**SIZES, "num_attention_heads": 4, "linear_num_heads": 4, "linear_head_dim": 8}
KIMI |= {
    "kv_lora_rank": 8,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 4,
    "v_head_dim": 8,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    "mlp_layer_types": ["dense"] * 4,
}
MAMBA2 = {
    **SPECIAL,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_heads": 4,
    "head_dim": 16,
    "state_size": 8,
}
MAMBA2 |= {"n_groups": 2, "chunk_size": 4, "residual_in_fp32": False}
MIXED = {"n_heads": 8, "d_head": 8, "d_state": 8, "n_groups": 2, "expand": 2, "chunk_size": 4}
MIXED = {**SIZES, **HEADS, **{f"mamba_{name}": x for name, x in MIXED.items()}}
GRANITE = {**MIXED, "num_local_experts": 0, "shared_intermediate_size": 24, "residual_multiplier": 0.5}
GRANITE["layer_types"] = ["linear_attention"] * 3 + ["full_attention"]
BAMBA = {**MIXED, "attn_layer_indices": [3]}
NEMOTRON = {"mamba_num_heads": 8, "mamba_head_dim": 8, "ssm_state_size": 8, "n_groups": 2, "chunk_size": 4}
NEMOTRON |= {**SIZES, **HEADS, "layers_block_type": ["mamba", "mamba", "mamba", "attention"]}
NEMOTRON["time_step_min"] = 1e-9  # of prompts; tokens after them have no limits
MAMBA = {**SPECIAL, "hidden_size": 32, "state_size": 8, "num_hidden_layers": 2}
LFM2 = {**SIZES, **HEADS, "layer_types": ["conv", "full_attention", "conv", "conv"]}
DELTA = {"causal_conv1d_fn", "causal_conv1d_update"}
RULE = DELTA | {"torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule"}
SCAN = DELTA | {"mamba2_chunk_scan", "mamba2_selective_state_update"}
MODELS = {
    "qwen3_5_text": (GATED, RULE),
    "qwen3_next": ({**GATED, "mlp_only_layers": [0, 1, 2, 3]}, RULE),
    "olmo_hybrid": (GATED, RULE),
    "kimi_linear": (KIMI, DELTA | {"chunk_kimi_delta_attention", "recurrent_kimi_delta_attention"}),
    "mamba2": (MAMBA2, SCAN),
    "granitemoehybrid": (GRANITE, SCAN),
    "bamba": (BAMBA, SCAN),
    "nemotron_h": (NEMOTRON, SCAN),
    "mamba": (MAMBA, DELTA),
    "lfm2": (LFM2, DELTA),
}
OF_DELTA = {"qwen3_5_text", "qwen3_next", "olmo_hybrid"}
OF_MAMBA2 = (
    {"mamba2", "granitemoehybrid", "bamba", "nemotron_h"} if CACHE == "cache" else set()
)  # else of other code
PLANNED = OF_DELTA | OF_MAMBA2  # see test_torch_linear_attention.py
ONE_OF_EACH = ["qwen3_5_text", *["granitemoehybrid"][: len(OF_MAMBA2)]]


def made(model_type, seed=0, **options):
    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(model_type, **{**MODELS[model_type][0], **options})
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.2)
    return model


def tokens(batch=2, length=9, seed=1):
    return torch.randint(3, 50, (batch, length), generator=torch.Generator().manual_seed(seed))


def cache_of(model):
    return transformers.DynamicCache(config=model.config)


def optimized_of(model_type, dtype=torch.float32):
    """With the plans of its layers, which are made in the first calls."""
    model = headlane.torch.optimize(made(model_type).to(dtype))
    with torch.no_grad():
        step(model, step(model, tokens())[1], tokens(length=1), 9)
    return model


def positions(model, first, end):
    """Options with the positions of tokens, which some models count from 0 in each call."""
    has_positions = "position_ids" in inspect.signature(type(model).forward).parameters
    return {"position_ids": torch.arange(first, end)[None]} if has_positions else {}


def step(model, given, ids=None, first=0):
    """Logits and the cache; given: a cache with tokens before the first one, or tokens before any."""
    cache, ids = (cache_of(model), given) if ids is None else (given, ids)
    options = positions(model, first, first + ids.shape[1])
    return model(ids, **{CACHE: cache}, **options).logits, cache


def layers_of(model):
    """Layers with linear attention: the first three."""
    layers = [x for x in model.modules() if type(x).__name__.endswith(("DecoderLayer", "Block"))]
    found = [x for x in layers if any(isinstance(y, CallsRecurrent) for y in x.modules())]
    assert len(found) == 3
    assert all(isinstance(x, Fused) for x in found)
    return found


def mixer_of(model, number):
    """What has linear attention in one of the layers, of a model that is optimized or not."""
    return [x for x in model.modules() if "A_log" in x._parameters][number]


class Runs:
    """Which results plans with linear attention had, and how often PyTorch's code ran instead."""

    def __init__(self, monkeypatch):
        self.plans = self.codes = 0
        run, rule = Plan.run, _recurrent.headlane.linear_attention

        def planned(plan, inputs):
            made = run(plan, inputs)
            self.plans += plan.asks_if_single and made is not NotImplemented
            return made

        def called(*arguments, **options):
            self.codes += 1
            return rule(*arguments, **options)

        monkeypatch.setattr(Plan, "run", planned)
        monkeypatch.setattr(_recurrent.headlane, "linear_attention", called)

    def since(self):
        found = self.plans, self.codes
        self.plans = self.codes = 0
        return found
