"""Mixtures of experts for the tests of headlane.torch."""

import headlane.torch
import torch
import transformers
from headlane.torch._experts import Experts
from headlane.torch._experts_by_code import ExpertsByCode
from torch_cases import normal, seeded

transformers.logging.set_verbosity_error()
SIZES = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "pad_token_id": 0,
}
LLAMA = {**SIZES, "num_key_value_heads": 2, "intermediate_size": 40}
QWEN = {**LLAMA, "moe_intermediate_size": 24, "num_experts": 8, "num_experts_per_tok": 3}
LATENT = {
    **LLAMA,
    **{
        "moe_intermediate_size": 24,
        "n_routed_experts": 8,
        "num_experts_per_tok": 3,
        "first_k_dense_replace": 1,
    },
    **{"kv_lora_rank": 8, "q_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8},
    **{"n_group": 1, "topk_group": 1},
}
# Their settings, and how many of the layers have experts.
MODELS = {
    "Mixtral": ({**LLAMA, "num_local_experts": 4}, 2),
    "Qwen2Moe": ({**QWEN, "shared_expert_intermediate_size": 20}, 2),
    "Qwen3Moe": ({**QWEN, "head_dim": 8}, 2),
    "Olmoe": (QWEN, 2),
    "GraniteMoe": ({**LLAMA, "num_local_experts": 4}, 2),
    "Phimoe": ({**LLAMA, "num_local_experts": 4}, 2),
    "DeepseekV2": ({**LATENT, "num_key_value_heads": 4}, 1),
    "DeepseekV3": ({**LATENT, "num_key_value_heads": 4}, 1),
    "Glm4Moe": ({**LATENT, "head_dim": 8}, 1),
    "GptOss": ({**LLAMA, "num_local_experts": 4, "head_dim": 8}, 2),  # biases, clamps, [experts, in, out]
}
KINDS = {"Mixtral": Experts, "GptOss": ExpertsByCode}  # a known gate, and a gate of its own
IDS = torch.arange(3, 21).view(2, 9)


def made(name, dtype=torch.float32):
    config = getattr(transformers, f"{name}Config")(**MODELS[name][0])
    return seeded(transformers.AutoModelForCausalLM.from_config, config).to(dtype)


def experts_of(model):
    return [x for x in model.modules() if isinstance(x, (Experts, ExpertsByCode))]


def module(name="Mixtral", dtype=torch.float32, **options):
    """Experts by themselves: theirs, ours, and a call."""
    theirs = next(x for x in made(name, dtype).modules() if type(x).__name__.endswith("Experts"))
    index = torch.tensor([[3, 0], [1, 3], [0, 1], [3, 1], [1, 0]])  # nobody takes 2
    call = normal(5, 32, dtype=dtype), index, normal(5, 2, seed=1).softmax(-1).to(dtype)
    return theirs, headlane.torch.optimize(theirs, **options), call
