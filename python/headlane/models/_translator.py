"""Translator: translation of text, by a T5 and its tokenizer."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, overload

from .. import _core
from .._types import ActivationDType, DType, GenerateOptions, Unpack
from ._t5 import T5
from ._text import checked_count, checked_text, checked_texts, folder_path, text_package


def _translator(
    folder: str,
    task: str | None,
    prefix: str,
    weights: DType,
    activations: ActivationDType,
) -> Translator:
    return Translator(folder, task=task, prefix=prefix, weights=weights, activations=activations)


class Translator:
    """Translation of text: the tokenizer and the model of a folder.

    Needs the package sentencepiece. It is pickled as the path of its folder, its task and its prefix.

    Args:
        folder: As for T5, with spiece.model.
        task: One of config.tasks, for its prefix and options. By default the only one, or the only one
            that is a translation.
        prefix: Put before each text, instead of the task's prefix. If there are several tasks and none is
            named, the options are then those of the folder.
        weights: As for T5.
        activations: As for T5.
    """

    __slots__ = ("_tokenizer", "prefix", "t5", "task")

    t5: T5  # the model, for token ids

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        task: str | None = None,
        prefix: str | None = None,
        weights: DType = "float32",
        activations: ActivationDType = "float32",
    ) -> None:
        sentencepiece = text_package("sentencepiece", "Translator")
        folder = folder_path("Translator", folder)
        for name, text in (("task", task), ("prefix", prefix)):
            if text is not None:
                checked_text("Translator", name, text)
        file = Path(folder) / "spiece.model"
        if not file.is_file():
            raise FileNotFoundError(f"{file} is missing; T5 takes token ids, from any tokenizer")
        self.t5 = T5(folder, weights=weights, activations=activations)
        try:
            self._tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(file))
        except (OSError, RuntimeError) as error:
            raise _core.CheckpointError(f"{file}: is not a model of SentencePiece: {error}") from None
        pieces, size = self._tokenizer.get_piece_size(), self.t5.config.vocab_size
        if pieces > size:
            raise _core.CheckpointError(f"{file}: has {pieces} pieces, but 'vocab_size' is {size}")
        tasks = self.t5.config.tasks
        if task is None:
            found = [name for name in tasks if len(tasks) == 1 or name.startswith("translation")]
            if len(found) > 1 and prefix is None:
                raise ValueError(f"Translator: task is one of: {', '.join(found)}")
            task = found[0] if len(found) == 1 else None
        if task is not None and task not in tasks:
            raise ValueError(
                f"Translator: the model has no task {task!r}; it has: {', '.join(tasks) or 'none'}"
            )
        self.task = task
        self.prefix = prefix if prefix is not None else tasks.get(task or "", "")

    @overload
    def translate(
        self,
        texts: str,
        *,
        batch_size: int = 32,
        num_threads: int | None = None,
        **options: Unpack[GenerateOptions],
    ) -> str: ...

    @overload
    def translate(
        self,
        texts: Iterable[str],
        *,
        batch_size: int = 32,
        num_threads: int | None = None,
        **options: Unpack[GenerateOptions],
    ) -> list[str]: ...

    def translate(
        self,
        texts: str | Iterable[str],
        *,
        batch_size: int = 32,
        num_threads: int | None = None,
        **options: Unpack[GenerateOptions],
    ) -> Any:
        """Translates texts. A text without tokens (empty, or white space) has the translation "".

        Args:
            texts: Texts, or a single text.
            batch_size: The number of texts processed at a time; it changes no result.
            num_threads: Maximum number of threads; num_threads() if None or 0.
            **options: Those of T5.generate().

        Returns:
            The translations, in order; a str for a single text.
        """
        checked_count("translate", "batch_size", batch_size)
        if isinstance(texts, str):
            return self.translate(
                [checked_text("translate", "texts", texts)], num_threads=num_threads, **options
            )[0]
        texts = checked_texts("translate", texts)
        result = [""] * len(texts)
        places = [i for i, text in enumerate(texts) if self._tokenizer.encode(text)]
        for first in range(0, len(places), batch_size):
            part = places[first : first + batch_size]
            ids = self.tokenize(texts[i] for i in part)
            outputs = self.t5.generate(ids, task=self.task, num_threads=num_threads, **options)
            for i, output in zip(part, outputs):
                result[i] = self.detokenize(output)
        return result

    def tokenize(self, texts: Iterable[str]) -> list[list[int]]:
        """The token ids of each text with its prefix, and </s>."""
        end = list(self.t5.config.eos_token_ids[:1])
        return [self._tokenizer.encode(self.prefix + text) + end for text in checked_texts("tokenize", texts)]

    def detokenize(self, ids: Iterable[int]) -> str:
        """The text of tokens; padding, </s> and control tokens are skipped."""
        pieces = self._tokenizer
        special = {self.t5.config.pad_token_id, *self.t5.config.eos_token_ids}
        size = pieces.get_piece_size()
        numbers = [checked_count("detokenize", f"ids[{i}]", token, 0) for i, token in enumerate(ids)]
        return pieces.decode(
            [
                i
                for i in numbers
                if i < size and i not in special and not pieces.is_control(i) and not pieces.is_unknown(i)
            ]
        )

    def __copy__(self) -> Translator:
        copied = object.__new__(Translator)
        for name in Translator.__slots__:
            setattr(copied, name, getattr(self, name))
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> Translator:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        return _translator, (
            self.t5.folder,
            self.task,
            self.prefix,
            self.t5.weights,
            self.t5.activations,
        )

    def __repr__(self) -> str:
        return f"Translator({self.t5!r}, prefix={self.prefix!r})"
