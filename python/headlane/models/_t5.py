"""T5, for token ids and for text."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np

from .. import _core
from .._immutable import itself
from .._types import DType, GenerateOptions, Unpack
from ._text import checked_count, checked_text, checked_texts, folder_path, text_package


class T5Config(NamedTuple):
    """The settings of a folder, with the names of config.json."""

    vocab_size: int
    d_model: int
    d_kv: int
    d_ff: int
    num_heads: int
    num_layers: int
    num_decoder_layers: int
    pad_token_id: int
    decoder_start_token_id: int
    eos_token_ids: tuple[int, ...]
    tasks: dict[str, str]  # prefixes of inputs, by the names of task_specific_params
    unsupported: tuple[
        str, ...
    ]  # generation settings of the folder that generate() does not have: do_sample …


class T5:
    """transformers' T5ForConditionalGeneration, for token ids: T5 1.0 and 1.1, Flan-T5, mT5.

    It is pickled as the path of its folder.

    Args:
        folder: A folder with config.json, of model_type "t5" or "mt5", weights in safetensors, and
            generation_config.json if present.
        weights: How weights are stored: "float32", "bfloat16", "float16" or "int8", as in PackedMatrix.
            Sums are computed in float32 all the same.

    Raises:
        CheckpointError: The folder cannot be read as a model. The message names the file, the key or
            tensor, and the reason.
    """

    __slots__ = ("_config", "_folder", "_t5", "_weights")

    def __init__(self, folder: str | os.PathLike[str], *, weights: DType = "float32") -> None:
        self._folder = folder_path("T5", folder)
        self._t5 = _core.T5(os.fsencode(self._folder), weights)
        self._weights = weights
        self._config = T5Config(**self._t5.config)

    @property
    def config(self) -> T5Config:
        """Sizes, special tokens and tasks."""
        return self._config

    @property
    def folder(self) -> str:
        """The given folder."""
        return self._folder

    @property
    def weights(self) -> DType:
        """How weights are stored."""
        return self._weights

    def defaults(self, task: str | None = None) -> dict[str, Any]:
        """The folder's default options of generate().

        Args:
            task: The name of a task, for its defaults.
        """
        return self._t5.defaults("" if task is None else task)

    def generate(
        self,
        ids: Iterable[Iterable[int]],
        *,
        task: str | None = None,
        num_threads: int | None = None,
        **options: Unpack[GenerateOptions],
    ) -> list[list[int]]:
        """Greedy or beam search: the tokens of transformers' generate(), without the padding.

        The output of an input does not depend on the other inputs.

        Args:
            ids: The token ids of each input, with </s> at the end.
            task: The name of a task, whose options are then the defaults.
            num_threads: Maximum number of threads; num_threads() if None or 0.
            **options: num_beams, max_length or max_new_tokens, min_length, length_penalty, early_stopping
                (False, True, "never") and no_repeat_ngram_size, as in transformers. max_length counts
                the start token.

        Returns:
            The token ids of each output.
        """
        all_options = self.defaults(task)
        given: dict[str, Any] = dict(options)
        if "max_new_tokens" in given:
            if "max_length" in given:
                raise ValueError("generate: both max_length and max_new_tokens are given")
            given["max_length"] = 1 + checked_count("generate", "max_new_tokens", given.pop("max_new_tokens"))
        unknown = given.keys() - all_options.keys()
        if unknown:
            raise TypeError(f"generate: unexpected options: {', '.join(sorted(unknown))}")
        return self._t5.generate(ids, **{**all_options, **given}, num_threads=num_threads)

    def encode(self, ids: Sequence[int], *, num_threads: int | None = None) -> np.ndarray:
        """The states of the encoder for one input, [tokens, d_model].

        Args:
            ids: The token ids of the input.
            num_threads: Maximum number of threads; num_threads() if None or 0.
        """
        return self._t5.encode(ids, num_threads)

    def logits(
        self, ids: Sequence[int], output: Sequence[int], *, num_threads: int | None = None
    ) -> np.ndarray:
        """The logits after each token of an output, [len(output), vocab_size].

        Args:
            ids: The token ids of the input.
            output: The token ids of the output, the start token first.
            num_threads: Maximum number of threads; num_threads() if None or 0.
        """
        return self._t5.logits(ids, output, num_threads)

    __copy__ = __deepcopy__ = itself

    def __reduce__(self) -> tuple[Any, ...]:
        return _t5, (self._folder, self._weights)

    def __repr__(self) -> str:
        c = self._config
        return f"T5({c.num_layers} + {c.num_decoder_layers} layers, {c.num_heads} heads, d_model {c.d_model})"


def _t5(folder: str, weights: DType) -> T5:
    return T5(folder, weights=weights)


def _translator(folder: str, task: str | None, prefix: str, weights: DType) -> Translator:
    return Translator(folder, task=task, prefix=prefix, weights=weights)


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
    ) -> None:
        sentencepiece = text_package("sentencepiece", "Translator")
        folder = folder_path("Translator", folder)
        for name, text in (("task", task), ("prefix", prefix)):
            if text is not None:
                checked_text("Translator", name, text)
        file = Path(folder) / "spiece.model"
        if not file.is_file():
            raise FileNotFoundError(f"{file} is missing; T5 takes token ids, from any tokenizer")
        self.t5 = T5(folder, weights=weights)
        self._tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(file))
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
        return _translator, (self.t5.folder, self.task, self.prefix, self.t5.weights)

    def __repr__(self) -> str:
        return f"Translator({self.t5!r}, prefix={self.prefix!r})"
