"""Models of diffusers, small and random, through headlane.torch.optimize(), beside eager mode, a process for
each.
"""

from __future__ import annotations

import argparse
import re
from typing import Any

import diffusers
import processes
import sweeps
import torch

BATCH = 2
HEADS = {"num_attention_heads": 2, "attention_head_dim": 16, "num_layers": 2}
JOINT = {**HEADS, "in_channels": 16, "joint_attention_dim": 24, "axes_dims_rope": (4, 4, 8)}
IMAGE = {**HEADS, "in_channels": 4, "sample_size": 8, "patch_size": 2}
VIDEO = {**HEADS, "in_channels": 4, "out_channels": 4}
UNET = {
    "sample_size": 16,
    "block_out_channels": (32, 64),
    "layers_per_block": 1,
    "norm_num_groups": 8,
    "attention_head_dim": 8,
}


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(BATCH, *shape)


def flat_ids() -> dict[str, torch.Tensor]:
    return {"img_ids": torch.zeros(16, 3), "txt_ids": torch.zeros(5, 3)}


def of_image() -> sweeps.Inputs:
    """The latents of an image, a text, and a time."""
    steps = torch.tensor([3, 40])
    return {"hidden_states": normal(4, 8, 8), "encoder_hidden_states": normal(5, 24), "timestep": steps}


def of_patches() -> sweeps.Inputs:
    """The same, in patches."""
    times = torch.tensor([0.3, 0.8])
    return {"hidden_states": normal(16, 16), "encoder_hidden_states": normal(5, 24), "timestep": times}


# Class, settings, and inputs.
MODELS: dict[str, tuple[str, dict[str, Any], Any]] = {
    "AuraFlow": (
        "AuraFlowTransformer2DModel",
        {
            **{name: x for name, x in IMAGE.items() if name != "num_layers"},
            **{"num_mmdit_layers": 1, "num_single_dit_layers": 1, "joint_attention_dim": 24},
            **{"caption_projection_dim": 32, "out_channels": 4, "pos_embed_max_size": 64},
        },
        lambda: {**of_image(), "timestep": torch.tensor([0.3, 0.8])},
    ),
    "AutoencoderKL": (
        "AutoencoderKL",
        {
            **{"block_out_channels": (32, 64), "norm_num_groups": 8, "latent_channels": 4},
            "down_block_types": ("DownEncoderBlock2D",) * 2,
            "up_block_types": ("UpDecoderBlock2D",) * 2,
        },
        lambda: {"sample": normal(3, 16, 16)},
    ),
    "Chroma": (
        "ChromaTransformer2DModel",
        {
            **JOINT,
            **{"patch_size": 1, "num_layers": 1, "num_single_layers": 1, "approximator_num_channels": 8},
            **{"approximator_hidden_dim": 16, "approximator_layers": 1},
        },
        lambda: {**of_patches(), **flat_ids()},
    ),
    "CogVideoX": (
        "CogVideoXTransformer3DModel",
        {
            **VIDEO,
            **{"time_embed_dim": 8, "text_embed_dim": 24, "sample_width": 8, "sample_height": 8},
            **{"sample_frames": 5, "max_text_seq_length": 5},
        },
        lambda: {**of_image(), "hidden_states": normal(2, 4, 8, 8)},
    ),
    "CogView4": (
        "CogView4Transformer2DModel",
        {**VIDEO, "patch_size": 2, "text_embed_dim": 24, "time_embed_dim": 8, "condition_dim": 4},
        lambda: {
            **of_image(),
            "original_size": torch.full((BATCH, 2), 8),
            "target_size": torch.full((BATCH, 2), 8),
            "crop_coords": torch.zeros(BATCH, 2, dtype=torch.int64),
        },
    ),
    "DiT": (
        "DiTTransformer2DModel",
        {**IMAGE, "num_embeds_ada_norm": 50, "norm_num_groups": 4, "out_channels": 8},
        lambda: {
            "hidden_states": normal(4, 8, 8),
            "timestep": torch.tensor([3, 40]),
            "class_labels": torch.tensor([1, 2]),
        },
    ),
    "Flux": (
        "FluxTransformer2DModel",
        {**JOINT, "patch_size": 1, "num_single_layers": 2, "pooled_projection_dim": 40},
        lambda: {**of_patches(), **flat_ids(), "pooled_projections": normal(40)},
    ),
    "LTXVideo": (
        "LTXVideoTransformer3DModel",
        {**HEADS, "in_channels": 8, "out_channels": 8, "cross_attention_dim": 32, "caption_channels": 24},
        lambda: {
            **of_image(),
            "hidden_states": normal(16, 8),
            "encoder_attention_mask": torch.ones(BATCH, 5),
            **{"num_frames": 1, "height": 4, "width": 4},
        },
    ),
    "Mochi": (
        "MochiTransformer3DModel",
        {
            **{**VIDEO, "out_channels": None, "patch_size": 2, "pooled_projection_dim": 16},
            **{"text_embed_dim": 24, "time_embed_dim": 8, "max_sequence_length": 5},
        },
        lambda: {
            **of_image(),
            "hidden_states": normal(4, 2, 8, 8),
            "encoder_attention_mask": torch.ones(BATCH, 5).bool(),
        },
    ),
    "PixArt": (
        "PixArtTransformer2DModel",
        {**IMAGE, "out_channels": 8, "cross_attention_dim": 32, "caption_channels": 24},
        lambda: {**of_image(), "added_cond_kwargs": {"resolution": None, "aspect_ratio": None}},
    ),
    "Prior": (
        "PriorTransformer",
        {**HEADS, "embedding_dim": 32, "num_embeddings": 7, "additional_embeddings": 4},
        lambda: {
            "hidden_states": normal(32),
            "timestep": 3,
            "proj_embedding": normal(32),
            "encoder_hidden_states": normal(7, 32),
        },
    ),
    "Sana": (
        "SanaTransformer2DModel",
        {
            **{**VIDEO, "num_cross_attention_heads": 2, "cross_attention_head_dim": 16, "patch_size": 1},
            **{"cross_attention_dim": 32, "caption_channels": 24, "sample_size": 8},
        },
        of_image,
    ),
    "SD3": (
        "SD3Transformer2DModel",
        {
            **{**IMAGE, "joint_attention_dim": 24, "caption_projection_dim": 32, "out_channels": 4},
            **{"pooled_projection_dim": 40, "pos_embed_max_size": 8},
        },
        lambda: {**of_image(), "pooled_projections": normal(40)},
    ),
    "UNet2D": (
        "UNet2DModel",
        {
            **UNET,
            "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
            "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
        },
        lambda: {"sample": normal(3, 16, 16), "timestep": 3},
    ),
    "UNet2DCondition": (
        "UNet2DConditionModel",
        {
            **UNET,
            "cross_attention_dim": 32,
            "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
            "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
        },
        lambda: {"sample": normal(4, 16, 16), "timestep": 3, "encoder_hidden_states": normal(7, 32)},
    ),
    "UVit2D": (
        "UVit2DModel",
        {
            **{"hidden_size": 32, "cond_embed_dim": 16, "micro_cond_encode_dim": 2, "vocab_size": 20},
            **{"micro_cond_embed_dim": 10, "encoder_hidden_size": 24, "codebook_size": 16},
            **{"in_channels": 32, "block_out_channels": 32, "num_res_blocks": 1, "num_hidden_layers": 2},
            **{"num_attention_heads": 2, "intermediate_size": 64, "block_num_heads": 2, "sample_size": 8},
        },
        lambda: {
            "input_ids": torch.randint(16, (BATCH, 8, 8)),
            "encoder_hidden_states": normal(5, 24),
            "pooled_text_emb": normal(16),
            "micro_conds": normal(5),
        },
    ),
    "Wan": (
        "WanTransformer3DModel",
        {**VIDEO, "patch_size": (1, 2, 2), "text_dim": 24, "freq_dim": 16, "ffn_dim": 64},
        lambda: {**of_image(), "hidden_states": normal(4, 2, 8, 8)},
    ),
}


def result(model: torch.nn.Module, inputs: sweeps.Inputs) -> torch.Tensor:
    made = model(**inputs)
    return made if isinstance(made, torch.Tensor) else made[0]


def sweep(name: str) -> dict[str, Any]:
    kind, settings, inputs = MODELS[name]
    torch.manual_seed(0)
    model = getattr(diffusers, kind)(**settings).eval()
    sweeps.randomize(model)
    return sweeps.compare(model, inputs(), result)


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev test-diffusers", description=__doc__)
    parser.add_argument("--only", metavar="REGEX", help="these models")
    processes.add_limits(parser)
    options = parser.parse_args()
    names = [name for name in MODELS if re.fullmatch(options.only or ".*", name)]
    sweeps.run(f"diffusers {diffusers.__version__}", names, sweep, options)


main()
