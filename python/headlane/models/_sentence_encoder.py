"""SentenceEncoder: embeddings of text, by a Bert and its tokenizer."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._types import ActivationDType, DType
from ._bert import Bert
from ._text import checked_count, checked_text, checked_texts, text_package
from ._tokenizer import tokenizer_of


def _sentence_encoder(folder: str, weights: DType, activations: ActivationDType) -> SentenceEncoder:
    return SentenceEncoder(folder, weights=weights, activations=activations)


class SentenceEncoder:
    """Sentence embeddings from text: the tokenizer and the model of a folder.

    Needs the package tokenizers. The settings of sentence-transformers and tokenizer_config.json are
    applied as sentence-transformers applies them. A folder with an unsupported setting is refused, by the
    name of the setting. Tokens are those of transformers 5: a BertTokenizer has the vocabulary of
    tokenizer.json and is else made by tokenizer_config.json, other tokenizers are those of tokenizer.json;
    special_tokens_map.json and added_tokens.json count unless tokenizer_config.json has added_tokens_decoder.

    Args:
        folder: As for Bert, with tokenizer.json.
        weights: As for Bert.
        activations: As for Bert.
    """

    __slots__ = ("_tokenizer", "bert")

    bert: Bert  # the model, for token ids

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        weights: DType = "float32",
        activations: ActivationDType = "float32",
    ) -> None:
        text_package("tokenizers", "SentenceEncoder")
        self.bert = Bert(folder, weights=weights, activations=activations)
        self._tokenizer = tokenizer_of(Path(self.bert.folder), self.bert.config)

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of each text, including those that begin and end it, at most
        max_seq_length.
        """
        texts = checked_texts("tokenize", texts)
        return [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]

    def encode(
        self,
        texts: str | Iterable[str],
        *,
        batch_size: int = 1024,
        pooling: str | None = None,
        normalize: bool | None = None,
        num_threads: int | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
    ) -> np.ndarray:
        """Embeddings of texts. Longer texts are truncated to max_seq_length tokens.

        Args:
            texts: Texts, or a single text.
            batch_size: The number of texts processed at a time. It changes no result, and hardly the
                time, since nothing is padded.
            pooling: As in Bert.embed(), without "none"; that of the folder if None.
            normalize: Normalize embeddings to length 1; as in the folder if None.
            num_threads: Maximum number of threads; num_threads() if None or 0.
            prompt: Put before each text; "" for none. If prompt and prompt_name are None, the folder's
                default prompt, if any.
            prompt_name: The name of a prompt in config.prompts.

        Returns:
            float32 [sentences, embedding_size], or [embedding_size] for a single text.
        """
        checked_count("encode", "batch_size", batch_size)
        if isinstance(texts, str):
            checked_text("encode", "texts", texts)
            return self.encode(
                [texts],
                pooling=pooling,
                normalize=normalize,
                num_threads=num_threads,
                prompt=prompt,
                prompt_name=prompt_name,
            )[0]
        texts = checked_texts("encode", texts)
        for name, given in (("prompt", prompt), ("prompt_name", prompt_name)):
            if given is not None:
                checked_text("encode", name, given)
        if (pooling or self.bert.config.pooling) == "none":
            raise ValueError(
                "encode: pooling is 'none', which returns no embedding; bert.encode returns the states of tokens"
            )
        prompt = self._prompt(prompt, prompt_name)
        prompt_tokens = self._tokens_of_prompt(prompt)
        out = np.empty((len(texts), self.bert.embedding_size(pooling)), np.float32)
        for first in range(0, len(texts), batch_size):
            part = slice(first, first + batch_size)
            ids = self.tokenize([prompt + text for text in texts[part]])
            self.bert.embed(
                ids,
                pooling=pooling,
                normalize=normalize,
                out=out[part],
                num_threads=num_threads,
                prompt_tokens=prompt_tokens,
            )
        return out

    def _prompt(self, prompt: str | None, name: str | None) -> str:
        """The prompt to put before each text."""
        prompts = self.bert.config.prompts
        if prompt is not None and name is not None:
            raise ValueError("encode: both prompt and prompt_name are given")
        if prompt is None and name is not None and name not in prompts:
            raise ValueError(
                f"encode: prompt_name is {name!r}; the folder has: {', '.join(map(repr, prompts))}"
            )
        if prompt is None:
            prompt = prompts.get(name or self.bert.config.default_prompt_name or "", "")
        return prompt

    def _tokens_of_prompt(self, prompt: str) -> int:
        """The number of tokens not pooled: those of the prompt and of the beginning of a sentence."""
        if not prompt or self.bert.config.include_prompt:
            return 0
        ids = self.tokenize([prompt])[0]
        special = {i for i, token in self._tokenizer.get_added_tokens_decoder().items() if token.special}
        return len(ids) - bool(ids and ids[-1] in special)

    def __reduce__(self) -> tuple[Any, ...]:
        return _sentence_encoder, self.bert.__reduce__()[1]

    def __repr__(self) -> str:
        return f"SentenceEncoder({self.bert!r})"
