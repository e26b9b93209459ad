"""BERT-style encoders, for token ids and for text."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .. import _core
from .._immutable import itself
from .._types import DType
from ._text import checked_count, checked_text, checked_texts, folder_path, text_package
from ._tokenizer import tokenizer_of


class BertConfig(NamedTuple):
    """The settings of a folder: those of config.json, and from `pooling` on those of sentence-
    transformers.
    """

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    type_vocab_size: int
    layer_norm_eps: float
    pooling: str | tuple[str, ...]  # results of several are concatenated
    normalize: bool
    max_seq_length: int
    truncate_dim: int | None  # embeddings are truncated to this length
    include_prompt: bool  # whether tokens of the prompt are pooled
    prompts: dict[str, str]
    default_prompt_name: str | None
    do_lower_case: bool


class Bert:
    """transformers' BertModel without its pooler, for token ids: BERT, MiniLM, BGE and similar models.

    It is pickled as the path of its folder.

    Args:
        folder: A folder with config.json, of model_type "bert", and weights in safetensors. The files of
            sentence-transformers, if present, set the defaults of pooling, normalization and the maximum
            length.
        weights: How weights are stored: "float32", "bfloat16", "float16" or "int8", as in PackedMatrix.
            Sums are computed in float32 all the same.

    Raises:
        CheckpointError: The folder cannot be read as a model. The message names the file, the key or
            tensor, and the reason.
    """

    __slots__ = ("_bert", "_config", "_given", "_weights")

    def __init__(self, folder: str | os.PathLike[str], *, weights: DType = "float32") -> None:
        self._given = folder_path("Bert", folder)
        self._bert = _core.Bert(os.fsencode(self._given), weights)
        self._weights = weights
        self._config = BertConfig(**self._bert.config)

    @property
    def config(self) -> BertConfig:
        """Sizes, and the defaults of embed()."""
        return self._config

    @property
    def weights(self) -> DType:
        """How weights are stored."""
        return self._weights

    def embedding_size(self, pooling: str | None = None) -> int:
        """The length of an embedding: hidden_size for each pooling, at most truncate_dim if that is set.

        Args:
            pooling: As in embed(); that of the config if None.
        """
        return self._bert.embedding_size(pooling)

    @property
    def folder(self) -> str:
        """The folder of config.json and the tokenizer: the given one, or one in it that
        modules.json names.
        """
        return os.fsdecode(self._bert.folder)

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
        prompt_tokens: int = 0,
    ) -> np.ndarray:
        """Embeddings of sentences of any lengths, without padding.

        Args:
            ids: The token ids of each sentence, including those that begin and end it.
            token_type_ids: A type for each token; all 0 if None.
            pooling: Of the states of the tokens: "mean"; "cls", the first; "lasttoken", the last; "max"
                in each dimension; "mean_sqrt_len_tokens", the sum divided by the square root of the
                number of tokens; "weightedmean", with weights 1, 2, 3 …; "none", a row for each token.
                That of the config if None.
            normalize: Normalize rows to length 1. If None, as in the config, and then before they are
                truncated to truncate_dim.
            truncate: Use the first config.max_seq_length tokens of longer sentences. Otherwise more than
                max_position_embeddings tokens are an error.
            out: Where to write the result.
            num_threads: Maximum number of threads; num_threads() if None or 0.
            prompt_tokens: The number of tokens at the beginning of each sentence that are a prompt, which
                is not pooled unless config.include_prompt.

        Returns:
            [sentences, embedding_size(pooling)]; with pooling="none", [all tokens, hidden_size].
        """
        return self._bert.embed(
            ids, token_type_ids, pooling, normalize, truncate, out, num_threads, prompt_tokens
        )

    def encode(
        self,
        ids: Iterable[Iterable[int]],
        *,
        token_type_ids: Iterable[Iterable[int]] | None = None,
        truncate: bool = False,
        num_threads: int | None = None,
    ) -> list[np.ndarray]:
        """The states of the last layer.

        Args:
            ids: As in embed().
            token_type_ids: As in embed().
            truncate: As in embed().
            num_threads: Maximum number of threads; num_threads() if None or 0.

        Returns:
            For each sentence an array [tokens, hidden_size].
        """
        states, lengths = self._bert.encode(ids, token_type_ids, truncate, num_threads)
        return np.split(states, np.cumsum(lengths)[:-1]) if lengths else []

    __copy__ = __deepcopy__ = itself

    def __reduce__(self) -> tuple[Any, ...]:
        return _bert, (self._given, self._weights)

    def __repr__(self) -> str:
        c = self._config
        sizes = f"{c.num_hidden_layers} layers, {c.num_attention_heads} heads, hidden_size {c.hidden_size}"
        return f"Bert({self.folder!r}: {sizes})"


def _bert(folder: str, weights: DType) -> Bert:
    return Bert(folder, weights=weights)


def _sentence_encoder(folder: str, weights: DType) -> SentenceEncoder:
    return SentenceEncoder(folder, weights=weights)


class SentenceEncoder:
    """Sentence embeddings from text: the tokenizer and the model of a folder.

    Needs the package tokenizers. The settings of sentence-transformers and tokenizer_config.json are
    applied as sentence-transformers applies them. A folder with an unsupported setting is refused, by the
    name of the setting.

    Args:
        folder: As for Bert, with tokenizer.json.
        weights: As for Bert.
    """

    __slots__ = ("_tokenizer", "bert")

    bert: Bert  # the model, for token ids

    def __init__(self, folder: str | os.PathLike[str], *, weights: DType = "float32") -> None:
        text_package("tokenizers", "SentenceEncoder")
        self.bert = Bert(folder, weights=weights)
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
