"""Checks of folders, texts and counts, and the import of tokenizer packages."""

from __future__ import annotations

import importlib
import operator
import os
from collections.abc import Iterable
from typing import Any

from .. import _core


def text_package(name: str, what: str) -> Any:
    """Imports a package that `what` needs; the ImportError says how to install it.

    It is imported on first use: models for token ids need none.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{what} needs the package {name} for text: pip install {name}") from error


def path_of(what: str, name: str, given: str | os.PathLike[str]) -> str:
    """The path of a file or folder. Messages name `what` and the argument."""
    try:
        path = os.fsdecode(given)
    except TypeError:
        raise TypeError(
            f"{what}: {name} has type {type(given).__name__}; wanted: str or os.PathLike"
        ) from None
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        raise ValueError(f"{what}: {name} is {path!r}, which can be no file's name") from None
    if b"\0" in encoded:
        raise ValueError(f"{what}: {name} is {path!r}, which has a NUL")
    return path


def folder_path(what: str, folder: str | os.PathLike[str]) -> str:
    """The absolute path of a model's folder. Messages name `what`."""
    path = path_of(what, "folder", folder)
    if not os.path.isdir(path):
        raise _core.CheckpointError(
            f"{what}: there is no folder {path!r}. headlane downloads nothing: pass a folder of this machine, such as "
            "huggingface_hub.snapshot_download(name) returns"
        )
    return os.path.abspath(path)


def checked_text(function: str, name: str, text: Any) -> str:
    """The text; TypeError or ValueError unless it is Unicode text."""
    if not isinstance(text, str):
        raise TypeError(f"{function}: {name} has type {type(text).__name__}; wanted: str")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{function}: {name} is no Unicode text: it has the surrogate {text[error.start]!r} at {error.start}"
        ) from None
    return text


def checked_texts(function: str, texts: Iterable[str]) -> list[str]:
    """The texts; TypeError or ValueError unless each is Unicode text."""
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
        raise TypeError(f"{function}: texts has type {type(texts).__name__}; wanted: an iterable of str")
    return [checked_text(function, f"texts[{i}]", text) for i, text in enumerate(texts)]


def checked_count(function: str, name: str, value: Any, least: int = 1) -> int:
    """The integer; TypeError or ValueError unless it is at least `least`."""
    try:
        count = operator.index(value)
    except TypeError:
        raise TypeError(f"{function}: {name} is {value!r}; wanted: an integer") from None
    if count < least:
        raise ValueError(f"{function}: {name} is {count}, the minimum is {least}")
    return count
