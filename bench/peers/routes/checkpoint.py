"""Weights in Hugging Face's format, read without any library."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np


def file_of(folder: Path | str) -> Path:
    return Path(folder) / "model.safetensors"


def read(folder: Path | str) -> dict[str, np.ndarray]:
    """The float32 tensors of model.safetensors, as views of the file."""
    path = file_of(folder)
    with path.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(size))
    data = np.memmap(path, np.uint8, mode="r", offset=8 + size)
    made = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, end = entry["data_offsets"]
            made[name] = data[begin:end].view(np.float32).reshape(entry["shape"])
    return made


def matrices(tensors: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Those of products and embeddings, not the small tables of relative positions."""
    return [tensor for tensor in tensors.values() if tensor.ndim == 2 and min(tensor.shape) >= 64]


def bert_layers(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors of BERT's layers, by their names in torch.nn.TransformerEncoderLayer behind "0.", "1." …"""
    names = {
        "attention.output.dense": "self_attn.out_proj",
        "attention.output.LayerNorm": "norm1",
        "intermediate.dense": "linear1",
        "output.dense": "linear2",
        "output.LayerNorm": "norm2",
    }
    made = {}
    for layer in range(sum(name.endswith("attention.self.query.weight") for name in tensors)):
        for kind in ("weight", "bias"):
            parts = [
                tensors[f"encoder.layer.{layer}.attention.self.{part}.{kind}"]
                for part in ("query", "key", "value")
            ]
            made[f"{layer}.self_attn.in_proj_{kind}"] = np.concatenate(parts)
            for theirs, ours in names.items():
                made[f"{layer}.{ours}.{kind}"] = np.array(tensors[f"encoder.layer.{layer}.{theirs}.{kind}"])
    return made
