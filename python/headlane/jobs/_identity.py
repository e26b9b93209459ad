"""What the bits of an output depend on, so that ranks and runs can be compared."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from ._lines import read_at

READ = {".json", ".model", ".safetensors", ".txt"}  # the kinds of files that models are read from
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


def model_files(folder: str) -> dict[str, Any]:
    """A digest of each file of a model, by its name in the folder."""
    paths = (path for path in sorted(Path(folder).rglob("*")) if path.suffix in READ and path.is_file())
    found = {str(path.relative_to(folder)): file_digest(path) for path in paths}
    if not found:
        raise RuntimeError(f"there is no model in {folder!r}")
    return found


def pieces_digest(digests: np.ndarray) -> str:
    """Of the whole input, from those of its pieces."""
    return hashlib.blake2b(np.ascontiguousarray(digests).tobytes(), digest_size=8).hexdigest()


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
