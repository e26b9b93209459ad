"""What the bits of an output depend on, so that ranks and runs can be compared."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from ._lines import read_at

# The files that models and their tokenizers are read from, in each folder, beside the weights.
READ = (
    "config.json",
    "generation_config.json",
    "modules.json",
    "config_sentence_transformers.json",
    *(
        f"sentence_{name}_config.json"
        for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
    ),
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "spiece.model",
)
BLOCK = 1 << 20  # bytes read at a time


def file_digest(path: Path | str) -> str:
    """Of all bytes: every rank reads the file anyway, and this takes some 1.5 s for 1 GB of it."""
    digest, size = hashlib.blake2b(digest_size=8), 0
    file = os.open(path, os.O_RDONLY)
    try:
        while block := read_at(file, BLOCK, size):
            digest.update(block)
            size += len(block)
    finally:
        os.close(file)
    return f"{size} bytes, {digest.hexdigest()}"


def _weights(folder: Path) -> list[str]:
    """The files with weights in a folder: one, or an index and those it names."""
    index = "model.safetensors.index.json"
    if (folder / "model.safetensors").exists() or not (folder / index).exists():
        return ["model.safetensors"]
    return [index, *set(json.loads((folder / index).read_bytes())["weight_map"].values())]


def model_files(folder: str, modules: bool) -> dict[str, Any]:
    """A digest of each file that a model is read from, by its name in the folder.

    Args:
        folder: The folder, from which the model was read without an error.
        modules: Whether folders within it are read as well, if modules.json names some.
    """
    inside = [""]
    if modules and (file := Path(folder, "modules.json")).exists():
        inside += [module.get("path", "") for module in json.loads(file.read_bytes())]
    found = {}
    for part in set(inside):
        for name in (*READ, *_weights(Path(folder, part))):
            if (path := Path(folder, part, name)).is_file():
                found[os.path.join(part, name)] = file_digest(path)
    return dict(sorted(found.items()))


def differences(before: dict[str, Any], now: dict[str, Any], path: str = "") -> list[str]:
    """The members that differ, as texts."""
    found = []
    for key in dict.fromkeys([*before, *now]):
        name = f"{path}{key}"
        a, b = before.get(key, "none"), now.get(key, "none")
        if isinstance(a, dict) and isinstance(b, dict):
            found += differences(a, b, f"{name} ")
        elif a != b:
            found.append(f"{name}: {a} before, {b} now")
    return found
