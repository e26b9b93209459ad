"""Encoders of the BERT family: on token ids, and on text."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .. import _core
from ._text import text_package


class BertConfig(NamedTuple):
    """What a folder says: the names of config.json, and of sentence-transformers' files the last three."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    type_vocab_size: int
    layer_norm_eps: float
    pooling: str  # "mean", "cls" or "none"
    normalize: bool
    max_seq_length: int


class Bert:
    """transformers' BertModel without its pooler, on token ids: BERT, MiniLM, BGE and their like.

    folder: config.json with model_type "bert", and weights in safetensors; with the files of sentence-transformers, if there are
      some, for the defaults of pooling, normalisation and the longest sentence.

    Raises CheckpointError, which names the file, the key or tensor, and the reason.
    """

    __slots__ = ("_bert", "_config")

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._bert = _core.Bert(os.fspath(folder))
        self._config = BertConfig(**self._bert.config)

    @property
    def config(self) -> BertConfig:
        """Sizes, and the defaults of embed()."""
        return self._config

    @property
    def folder(self) -> str:
        """Where config.json and the tokenizer's files are: the folder given, or one in it that modules.json names."""
        return self._bert.folder

    def embed(
        self,
        ids: Iterable[Iterable[int]],
        *,
        token_type_ids: Iterable[Iterable[int]] | None = None,
        pooling: str | None = None,
        normalize: bool | None = None,
        truncate: bool = False,
        out: Any = None,
        num_threads: int | None = None,
    ) -> np.ndarray:
        """Embeddings [sentences, hidden_size] of sentences of any lengths: nothing is padded.

        ids: for each sentence its token ids, with those that begin and end it.
        token_type_ids: likewise; all 0 if None.
        pooling: "mean" of the states of all tokens, "cls", the first one's, or "none": a row for each token.
        normalize: rows to length 1.
        truncate: of longer sentences the first config.max_seq_length tokens; otherwise more than max_position_embeddings
          are an error.
        out: where to write the result, a float32 array.
        num_threads: for this call; num_threads() if None.

        pooling and normalize are those of the config if None.
        """
        return self._bert.embed(ids, token_type_ids, pooling, normalize, truncate, out, num_threads)

    def encode(
        self,
        ids: Iterable[Iterable[int]],
        *,
        token_type_ids: Iterable[Iterable[int]] | None = None,
        truncate: bool = False,
        num_threads: int | None = None,
    ) -> list[np.ndarray]:
        """The states of the last layer: for each sentence [tokens, hidden_size]. Parameters as in embed()."""
        states, lengths = self._bert.encode(ids, token_type_ids, truncate, None, num_threads)
        return np.split(states, np.cumsum(lengths)[:-1])

    def __repr__(self) -> str:
        c = self._config
        return f"Bert({self.folder!r}: {c.num_hidden_layers} layers, {c.num_attention_heads} heads, hidden_size {c.hidden_size})"


class SentenceEncoder:
    """Sentences to embeddings: the tokenizer (package tokenizers) and the model of a folder.

    folder: as for Bert, with tokenizer.json.
    """

    __slots__ = ("_lower", "_tokenizer", "bert")

    bert: Bert  # the model, on token ids

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        tokenizers = text_package("tokenizers", "SentenceEncoder")
        self.bert = Bert(folder)
        files = Path(self.bert.folder)
        if not (files / "tokenizer.json").is_file():
            raise FileNotFoundError(
                f"{files / 'tokenizer.json'} is missing; Bert takes token ids, from any tokenizer"
            )
        self._tokenizer = tokenizers.Tokenizer.from_file(str(files / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(self.bert.config.max_seq_length)
        settings = files / "sentence_bert_config.json"
        self._lower = settings.is_file() and bool(
            json.loads(settings.read_text("utf-8")).get("do_lower_case")
        )

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids, with those that begin and end a sentence, at most max_seq_length."""
        if self._lower:
            texts = [text.lower() for text in texts]
        return [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]

    def encode(
        self,
        texts: str | Iterable[str],
        *,
        batch_size: int = 1024,
        pooling: str | None = None,
        normalize: bool | None = None,
        num_threads: int | None = None,
    ) -> np.ndarray:
        """Embeddings, float32: [sentences, hidden_size], or [hidden_size] of a single text.

        batch_size: texts that are in work at a time; it changes no result, and hardly the time, since nothing is padded.
        pooling: "mean" or "cls"; normalize: rows to length 1; both as the folder says if None.
        num_threads: for this call; num_threads() if None.

        Longer texts count up to max_seq_length tokens.
        """
        if isinstance(texts, str):
            return self.encode([texts], pooling=pooling, normalize=normalize, num_threads=num_threads)[0]
        texts = list(texts)
        if batch_size < 1:
            raise ValueError(f"encode: batch_size is {batch_size}, the least is 1")
        if (pooling or self.bert.config.pooling) == "none":
            raise ValueError(
                "encode: pooling is 'none', which gives no embedding; bert.encode gives the states of tokens"
            )
        for i, text in enumerate(texts):
            if not isinstance(text, str):
                raise TypeError(f"encode: texts[{i}] has type {type(text).__name__}; wanted: str")
        out = np.empty((len(texts), self.bert.config.hidden_size), np.float32)
        for first in range(0, len(texts), batch_size):
            part = slice(first, first + batch_size)
            ids = self.tokenize(texts[part])
            self.bert.embed(ids, pooling=pooling, normalize=normalize, out=out[part], num_threads=num_threads)
        return out

    def __repr__(self) -> str:
        return f"SentenceEncoder({self.bert!r})"
