"""Packages that turn text into tokens: imported when the first text comes, for models on token ids need none."""

from __future__ import annotations

import importlib
from typing import Any


def text_package(name: str, what: str) -> Any:
    """The module, or ImportError that says how to get it; `what` needs it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{what} needs the package {name} for text: pip install {name}") from error
