"""What tests of latent attention in headlane.torch have in common."""

import transformers
from decoder_cases import LLAMA
from headlane.torch import _kept
from torch_cases import seeded

SIZES = {
    **LLAMA,
    "num_key_value_heads": 4,
    "kv_lora_rank": 12,
    "q_lora_rank": 20,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
}
DENSE = {"first_k_dense_replace": 2}
# And the calls in the plan of a layer: its last one takes what follows the attention.
MODELS = {
    "DeepseekV3": ({**SIZES, **DENSE}, 3),  # pairs of neighbours become halves
    "DeepseekV3 halves": ({**SIZES, **DENSE, "rope_interleave": False}, 3),
    "DeepseekV3 without lora": ({**SIZES, **DENSE, "q_lora_rank": None}, 3),
    "DeepseekV2": ({**SIZES, **DENSE}, 5),  # complex numbers, of which both parts are taken first
    "MiniCPM3": (SIZES, 3),
    "Youtu": (SIZES, 3),
}


def made(name):
    config = getattr(transformers, f"{name.split()[0]}Config")(**MODELS[name][0])
    return seeded(transformers.AutoModelForCausalLM.from_config, config)


def known_positions(monkeypatch):
    """How many positions of a layer were known, and how many there are, for each attention."""
    seen, of = [], _kept.Kept.of

    def watched(kept, sources, count):
        known = kept._known(sources, sources[0].shape[-2] - count)
        seen.append((known, sources[0].shape[-2]))
        return of(kept, sources, count)

    monkeypatch.setattr(_kept.Kept, "of", watched)
    return seen
