"""T5: text to text, on token ids and on text."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np

from .. import _core
from .._types import GenerateOptions, Unpack
from ._text import checked_count, checked_text, checked_texts, folder_path, text_package


class T5Config(NamedTuple):
    """What a folder says, with the names of config.json."""

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
    tasks: dict[str, str]  # names of task_specific_params, and what stands before an input
    unsupported: tuple[str, ...]  # settings of generation in the files that generate() lacks: do_sample, …


class T5:
    """transformers' T5ForConditionalGeneration, on token ids: T5 1.0 and 1.1, Flan-T5, mT5.

    folder: config.json with model_type "t5" or "mt5", weights in safetensors, generation_config.json if there is one.

    Raises CheckpointError, which names the file, the key or tensor, and the reason. A copy of a model is itself; it is pickled as the
    path of its folder.
    """

    __slots__ = ("_config", "_folder", "_t5")

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = folder_path("T5", folder)
        self._t5 = _core.T5(os.fsencode(self._folder))
        self._config = T5Config(**self._t5.config)

    @property
    def config(self) -> T5Config:
        """Sizes, special tokens and tasks."""
        return self._config

    @property
    def folder(self) -> str:
        """The folder given."""
        return self._folder

    def defaults(self, task: str | None = None) -> dict[str, Any]:
        """The options of generate() as the folder has them, or as it has them for a task."""
        return self._t5.defaults("" if task is None else task)

    def generate(
        self,
        ids: Iterable[Iterable[int]],
        *,
        task: str | None = None,
        num_threads: int | None = None,
        **options: Unpack[GenerateOptions],
    ) -> list[list[int]]:
        """For each input its output: the tokens of transformers' generate(), without the padding.

        ids: for each input its token ids, </s> at the end.
        task: whose options are the defaults, instead of the folder's.
        num_threads: for this call; num_threads() if None or 0.
        options: num_beams, max_length or max_new_tokens, min_length, length_penalty, early_stopping (False, True, "never"),
          no_repeat_ngram_size, as in transformers; max_length counts the start token.

        An input gives the same tokens alone and among others. A signal (Ctrl-C) ends the call within a layer's time.
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
        """The encoder's states of one input, [tokens, d_model]."""
        return self._t5.encode(ids, num_threads)

    def logits(
        self, ids: Sequence[int], output: Sequence[int], *, num_threads: int | None = None
    ) -> np.ndarray:
        """The logits [len(output), vocab_size] after each token of an output, whose first one is the start token."""
        return self._t5.logits(ids, output, num_threads)

    def __copy__(self) -> T5:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> T5:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return T5, (self._folder,)

    def __repr__(self) -> str:
        c = self._config
        return f"T5({c.num_layers} + {c.num_decoder_layers} layers, {c.num_heads} heads, d_model {c.d_model})"


def _translator(folder: str, task: str | None, prefix: str) -> Translator:
    return Translator(folder, task=task, prefix=prefix)


class Translator:
    """Sentences to sentences: the tokenizer (package sentencepiece) and the model of a folder.

    folder: as for T5, with spiece.model.
    task: of config.tasks, whose prefix and options are taken; by default the only one, or the only one that is a translation.
    prefix: what stands before each sentence, instead of the task's. With it no task need be named where there are several:
      then the options are the folder's.

    It is pickled as the path of its folder, its task and its prefix.
    """

    __slots__ = ("_tokenizer", "prefix", "t5", "task")

    t5: T5  # the model, on token ids

    def __init__(
        self, folder: str | os.PathLike[str], *, task: str | None = None, prefix: str | None = None
    ) -> None:
        sentencepiece = text_package("sentencepiece", "Translator")
        folder = folder_path("Translator", folder)
        for name, text in (("task", task), ("prefix", prefix)):
            if text is not None:
                checked_text("Translator", name, text)
        file = Path(folder) / "spiece.model"
        if not file.is_file():
            raise FileNotFoundError(f"{file} is missing; T5 takes token ids, from any tokenizer")
        self.t5 = T5(folder)
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
        """The translations, in order; of a single text, its own. options: of T5.generate(); batch_size changes no result.

        A text of which the tokenizer leaves nothing (empty, or white space of any kind) has the translation "".
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
        """Token ids of the prefix and each text, with </s>."""
        end = list(self.t5.config.eos_token_ids[:1])
        return [self._tokenizer.encode(self.prefix + text) + end for text in checked_texts("tokenize", texts)]

    def detokenize(self, ids: Iterable[int]) -> str:
        """The text of tokens, without those that mean none."""
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
        return _translator, (self.t5.folder, self.task, self.prefix)

    def __repr__(self) -> str:
        return f"Translator({self.t5!r}, prefix={self.prefix!r})"
