"""Tiny random models of any type that transformers lists: configurations shrunk by the names of
their fields.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto

WIDTH, HEADS, VOCABULARY, LAYERS, IMAGE, PATCH, WINDOW = 64, 4, 99, 2, 32, 8, 4
HEAD_DIM = WIDTH // HEADS
LARGEST = 70_000_000  # parameters; larger models are not built

# Fields in the order in which the first pattern that matches decides. None: the field keeps its
# default.
RULES: list[tuple[str, Any]] = [
    (r"hidden_size_per_layer_input", HEAD_DIM),
    (r"attn_layer_(period|offset)", 1),
    (r"(mamba|ssm).*n(um)?_heads|mamba_num_heads", 2 * WIDTH // HEAD_DIM),
    (r"(n_)?vocab_size|.*_vocab_size|vocab_size_per_layer_input|vocabulary_size|n_tokens?", VOCABULARY),
    (r".*(num_channels|num_mel_bins|n_mels|feature_size|num_labels|input_feat_per_channel)", None),
    (
        r"num_hidden_layers|n_layers?|num_layers|.*encoder_layers|.*decoder_layers|.*num_encoder_layers"
        r"|.*num_decoder_layers|depth|num_blocks|num_hidden_layer|.*num_layers|encoder_num_layers|.*num_hidden_layers",
        LAYERS,
    ),
    (r"num_key_value_heads|.*_key_value_heads|.*num_kv_heads|n_head_kv", "kv_heads"),
    (
        r"(.*_)?(num_attention_heads|n_heads?|num_heads|attention_heads|encoder_attention_heads|decoder_attention_heads"
        r"|num_decoder_attention_heads|num_encoder_attention_heads|.*_num_heads|.*_attention_heads)",
        HEADS,
    ),
    (
        r"(.*_)?(head_dim|d_kv|head_width|attention_head_dim|qk_nope_head_dim|v_head_dim"
        r"|attention_head_size|d_head|dim_head)",
        HEAD_DIM,
    ),
    (r"(.*_)?(qk_rope_head_dim|rotary_dim)", 8),
    (r"q_lora_rank|kv_lora_rank|.*_lora_rank", 32),
    (r"(.*_)?(moe_intermediate_size|expert_ffn_hidden_size|.*moe.*ffn.*)", 32),
    (
        r"(.*_)?(intermediate_size|ffn_dim|d_ff|n_inner|dim_feedforward|ffn_hidden_size|mlp_dim|d_inner"
        r"|feed_forward_size|encoder_ffn_dim|decoder_ffn_dim|intermediate_dim|ffn_hidden_dim|hidden_dim_ff)",
        2 * WIDTH,
    ),
    (
        r"(.*_)?(num_experts_per_tok|top_k_experts|moe_top_?k|moe_k|router_top_k|num_experts_per_token|experts_top_k)",
        2,
    ),
    (
        r"(.*_)?(num_experts|num_local_experts|n_routed_experts|moe_num_experts|num_routed_experts|num_moe_experts)",
        4,
    ),
    (r"n_group|topk_group|num_expert_groups?", 1),
    (
        r"(.*_)?(hidden_size|hidden_dim|n_embd|embed_dim|d_model|embedding_size|dim|decoder_hidden_size|projection_dim"
        r"|out_hidden_size|hidden_sizes?|model_dim|width|embedding_dim|emb_dim|hidden_channels|projector_hidden_size"
        r"|encoder_embed_dim)",
        WIDTH,
    ),
    (r"image_size|input_size|img_size|crop_size|.*image_size", IMAGE),
    (r"(spatial_)?patch_size|tubelet_size.*", PATCH),
    (
        r"(.*_)?(sliding_window|attention_window|local_window|sliding_window_size|attention_chunk_size"
        r"|window_size_left)",
        WINDOW,
    ),
    (r"max_window_layers", 0),
    (r"index_topk", WINDOW),
    (r"num_frames|n_frames", 2),
]
# For fields that are None and that a model needs.
MISSING = {
    "vocab_size": VOCABULARY,
    "num_experts": 4,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "prediction_length": 8,
}
RESNET = {
    "model_type": "resnet",
    "embedding_size": 8,
    "hidden_sizes": [8, 16, 16, 32],
    "depths": [1, 1, 1, 1],
    "out_features": ["stage2", "stage3", "stage4"],
}
TOKENS = re.compile(r".*_token_(id|index)$|.*token_id$")


def _shrunk_int(name: str, value: int, fields: dict[str, Any]) -> int:
    for pattern, small in RULES:
        if re.fullmatch(pattern, name):
            if small is None or value in (0, -1):
                return value
            if small == "kv_heads":
                heads = fields.get("num_attention_heads", fields.get("n_head", 0))
                return HEADS if value == heads else 1 if value == 1 else HEADS // 2
            return min(value, small)
    return value


def _shrunk(name: str, value: Any, fields: dict[str, Any]) -> Any:
    if value is None:
        return MISSING.get(name)
    if isinstance(value, bool):
        return value
    if TOKENS.fullmatch(name) and isinstance(value, int):
        return value if value < VOCABULARY - 10 else VOCABULARY - 1 - sum(map(ord, name)) % 9
    if isinstance(value, int):
        return _shrunk_int(name, value, fields)
    if name in (
        "layer_types",
        "layers_block_type",
        "mlp_layer_types",
        "block_types",
        "layers_types",
    ) and isinstance(value, list):
        return value  # cut later, all together
    if name == "mrope_section" or name.endswith("mrope_section"):
        half = HEAD_DIM // 2
        return [half // 2 - 1, half // 2 - 1, 2] if len(value) == 3 else value
    if isinstance(value, dict) and "rope_theta" in value:
        value = {"mrope_section": [0, 0, 0], **value}
    if isinstance(value, dict):
        return {k: _shrunk(k, v, value) if not isinstance(v, int) else v for k, v in value.items()}
    if isinstance(value, (list, tuple)) and value and all(type(x) is int for x in value):
        if re.fullmatch(r"depths|.*layers|num_blocks", name):
            return type(value)(1 for _ in value)
        if re.fullmatch(r"image_size|input_size|img_size", name):
            return type(value)(IMAGE for _ in value)
        if re.fullmatch(r"patch_size", name):
            return type(value)(min(x, PATCH) for x in value)
    return value


def _cut_layers(fields: dict[str, Any]) -> None:
    """As many layers as there are kinds of them, at least two; every list that goes over the layers
    is cut with them.
    """
    names = [n for n in ("layer_types", "layers_block_type") if isinstance(fields.get(n), list) and fields[n]]
    if not names:
        return
    kinds = fields[names[0]]
    first = sorted({kinds.index(kind) for kind in kinds})
    for index in range(len(kinds)):
        if len(first) < LAYERS and index not in first:
            first.append(index)
    first.sort()
    for name, value in fields.items():
        if isinstance(value, list) and len(value) == len(kinds):
            fields[name] = [value[index] for index in first]
    for name in ("num_hidden_layers", "n_layer", "num_layers", "n_layers"):
        if name in fields:
            fields[name] = len(first)


def _part(config: PreTrainedConfig, name: str) -> Any:
    try:
        return getattr(config, name, None)
    except Exception:  # a field that differs between layers
        return None


def tiny_fields(config: PreTrainedConfig) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    defaults = config.to_dict()
    for name, value in defaults.items():
        if name in (
            "model_type",
            "transformers_version",
            "architectures",
            "dtype",
            "torch_dtype",
            "id2label",
            "label2id",
            "out_features",
            "out_indices",
            "_out_features",
            "_out_indices",
            "stage_names",
            "per_layer_config",
        ):
            continue
        part = _part(config, name)
        if isinstance(part, PreTrainedConfig):
            fields[name] = {"model_type": part.model_type, **tiny_fields(part)}
        else:
            fields[name] = _shrunk(name, value, defaults)
    if (
        "use_timm_backbone" in fields
        or getattr(_part(config, "backbone_config"), "model_type", "") == "timm_backbone"
    ):
        fields.update(
            use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, backbone_config=RESNET
        )
    if "state_size" in fields and "num_heads" in fields and "expand" in fields:
        fields["num_heads"] = int(fields["expand"] * WIDTH / fields["head_dim"])
    if fields.get("attn_layer_indices", 0) in (None, []):
        fields["attn_layer_indices"] = [1]
    _cut_layers(fields)
    return fields


def default_config(config_class: type[PreTrainedConfig]) -> PreTrainedConfig:
    return config_class()


def few_layers(config: PreTrainedConfig) -> dict[str, Any]:
    """Only the number of layers and tokens is reduced: for types whose other sizes depend on each
    other.
    """
    fields = {}
    for name, value in config.to_dict().items():
        part = _part(config, name)
        if isinstance(part, PreTrainedConfig):
            fields[name] = {"model_type": part.model_type, **few_layers(part)}
        elif type(value) is int and re.fullmatch(RULES[2][0], name):
            fields[name] = min(value, LAYERS)
    return fields


def configurations(config_class: type[PreTrainedConfig]):
    """Ways to make a configuration, smallest first."""
    yield "tiny", lambda: config_class(**tiny_fields(default_config(config_class)))
    yield "few layers", lambda: config_class(**few_layers(default_config(config_class)))


GENERATING = ["SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ", "IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM", "CAUSAL_LM"]


def model_classes(model_type: str) -> list[str]:
    """Names of classes: one that generates, else the base model, else whatever there is."""
    found = []
    for task in GENERATING:
        name = getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES").get(model_type)
        if name:
            found.append(name)
    others = [modeling_auto.MODEL_MAPPING_NAMES.get(model_type)]
    for mapping in sorted(n for n in dir(modeling_auto) if re.fullmatch(r"MODEL_.*MAPPING_NAMES", n)):
        others.append(getattr(modeling_auto, mapping).get(model_type))
    for name in others:
        for one in [name] if isinstance(name, str) else name or []:
            if one not in found:
                found.append(one)
    return found


@torch.no_grad()
def randomize(model: PreTrainedModel) -> None:
    """Weights that make attention matter: those of the usual initialisation give every key the same
    weight.
    """
    generator = torch.Generator().manual_seed(1)
    for name, tensor in model.named_parameters():
        if not tensor.is_floating_point():
            continue
        if not torch.isfinite(tensor).all() or tensor.abs().max() > 1e3:
            tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.1)
        if re.search(r"A_log|dt_bias|\bD\b|decay|lambda|norm", name):
            continue
        if tensor.dim() >= 2:
            fan_in = tensor[0].numel()
            spread = 1.0 if "embed" in name and tensor.dim() == 2 else 1.5 / fan_in**0.5
            if tensor.numel() > 1 and tensor.std() < spread:
                tensor.copy_(torch.randn(tensor.shape, generator=generator) * spread)
        elif tensor.numel() > 1 and tensor.std() == 0 and tensor.abs().max() == 0:
            tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.1)
    for module in model.modules():
        for name, tensor in list(module._parameters.items()) + list(module._buffers.items()):
            if tensor is not None and tensor.is_floating_point() and not torch.isfinite(tensor).all():
                if not torch.isinf(tensor).any() or name in module._parameters:
                    tensor.zero_()


def field(config: PreTrainedConfig, *names: str, default: Any = None) -> Any:
    """The first of these fields that the configuration or one of its parts has."""
    parts = [config] + [
        part for name in config.sub_configs if isinstance(part := _part(config, name), PreTrainedConfig)
    ]
    for name in names:
        for part in parts:
            value = _part(part, name)
            if value is not None:
                return value
    return default
