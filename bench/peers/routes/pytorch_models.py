"""Models of transformers with random weights from a fixed seed: `python -m peers.routes.pytorch_models NAME FOLDER`
makes one. Speed does not depend on the weights, so none need to be downloaded."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ..cases.pytorch import IMAGE, MELS, PATCH, SHAPES, Shape

os.environ.setdefault("HF_HUB_OFFLINE", "1")


def config(shape: Shape):
    import transformers

    s = shape
    if s.kind == "GPT2LMHeadModel":
        sizes = {"n_layer": s.layers, "n_embd": s.d_model, "n_inner": s.d_ff, "n_head": s.heads}
        return transformers.GPT2Config(**sizes, vocab_size=s.vocabulary)
    if s.kind == "WhisperModel":  # a decoder as large belongs to it
        sizes = {f"{part}_{name}": value for part in ("encoder", "decoder") for name, value in (
            ("layers", s.layers), ("attention_heads", s.heads), ("ffn_dim", s.d_ff))}  # fmt: skip
        return transformers.WhisperConfig(d_model=s.d_model, num_mel_bins=MELS, **sizes)
    sizes = {
        "num_hidden_layers": s.layers,
        "hidden_size": s.d_model,
        "intermediate_size": s.d_ff,
        "num_attention_heads": s.heads,
    }
    if s.kind == "ViTModel":
        return transformers.ViTConfig(**sizes, image_size=IMAGE, patch_size=PATCH)
    if s.kind == "BertModel":
        return transformers.BertConfig(**sizes, vocab_size=s.vocabulary)
    more = {"num_key_value_heads": s.kv_heads, "vocab_size": s.vocabulary, "tie_word_embeddings": False}
    return transformers.LlamaConfig(**sizes, **more)


def more(shape: Shape) -> dict:
    """Without the pooler, which nobody computes."""
    return {"add_pooling_layer": False} if shape.kind in ("BertModel", "ViTModel") else {}


def build(shape: Shape):
    import torch
    import transformers

    torch.manual_seed(1)
    return getattr(transformers, shape.kind)(config(shape), **more(shape)).eval()


def load(shape: Shape, folder: Path, dtype: str = "float32", mapped: bool = False):
    """With SDPA attention. transformers leaves float32 weights in the mapped file, where they are not aligned:
    unless `mapped`, they get memory of their own, as PyTorch allocates it."""
    import torch
    import transformers

    kind = getattr(transformers, shape.kind)
    settings = {"dtype": getattr(torch, dtype), "attn_implementation": "sdpa", **more(shape)}
    model = kind.from_pretrained(folder, **settings).eval()
    if shape.kind == "WhisperModel":
        model = model.encoder
    if not mapped:
        for parameter in model.parameters():
            parameter.data = parameter.data.clone()
    return model


if __name__ == "__main__":
    build(SHAPES[sys.argv[1]]).save_pretrained(sys.argv[2], max_shard_size="20GB")
