"""Encoders of the BERT family: on token ids, and on text."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .. import _core
from ._text import checked_count, checked_text, checked_texts, folder_path, text_package
from ._tokenizer import tokenizer_of


class BertConfig(NamedTuple):
    """What a folder says: the names of config.json; from `pooling` on, of sentence-transformers' files."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    type_vocab_size: int
    layer_norm_eps: float
    pooling: str | tuple[str, ...]  # of several the results stand side by side
    normalize: bool
    max_seq_length: int
    truncate_dim: int | None  # so many of an embedding's first floats are given
    include_prompt: bool  # tokens of the prompt are pooled
    prompts: dict[str, str]
    default_prompt_name: str | None
    do_lower_case: bool


class Bert:
    """transformers' BertModel without its pooler, on token ids: BERT, MiniLM, BGE and their like.

    folder: config.json with model_type "bert", and weights in safetensors; with the files of sentence-transformers, if there are
      some, for the defaults of pooling, normalisation and the longest sentence.

    Raises CheckpointError, which names the file, the key or tensor, and the reason. A copy of a model is itself; it is pickled as the
    path of its folder. A signal (Ctrl-C) ends a call within a layer's time.
    """

    __slots__ = ("_bert", "_config", "_given")

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._given = folder_path("Bert", folder)
        self._bert = _core.Bert(os.fsencode(self._given))
        self._config = BertConfig(**self._bert.config)

    @property
    def config(self) -> BertConfig:
        """Sizes, and the defaults of embed()."""
        return self._config

    def embedding_size(self, pooling: str | None = None) -> int:
        """The length of an embedding: hidden_size for each pooling, at most truncate_dim if there is one."""
        return self._bert.embedding_size(pooling)

    @property
    def folder(self) -> str:
        """Where config.json and the tokenizer's files are: the folder given, or one in it that modules.json names."""
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
        """Embeddings [sentences, embedding_size(pooling)] of sentences of any lengths: nothing is padded.

        ids: for each sentence its token ids, with those that begin and end it.
        token_type_ids: likewise; all 0 if None.
        pooling: "mean" of the states of all tokens, "cls", the first one's, "lasttoken", the last one's, "max" in each dimension,
          "mean_sqrt_len_tokens", the sum over the root of the number of tokens, "weightedmean", with weights 1, 2, 3, …, or
          "none": a row for each token.
        normalize: rows to length 1; if None as the config says, and then before truncate_dim cuts them.
        truncate: of longer sentences the first config.max_seq_length tokens; otherwise more than max_position_embeddings
          are an error.
        out: where to write the result, a float32 array.
        num_threads: for this call; num_threads() if None or 0.
        prompt_tokens: the first so many tokens of each sentence are a prompt, not pooled unless config.include_prompt.

        pooling and normalize are those of the config if None.
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
        """The states of the last layer: for each sentence [tokens, hidden_size]. Parameters as in embed()."""
        states, lengths = self._bert.encode(ids, token_type_ids, truncate, num_threads)
        return np.split(states, np.cumsum(lengths)[:-1]) if lengths else []

    def __copy__(self) -> Bert:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Bert:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Bert, (self._given,)

    def __repr__(self) -> str:
        c = self._config
        return f"Bert({self.folder!r}: {c.num_hidden_layers} layers, {c.num_attention_heads} heads, hidden_size {c.hidden_size})"


class SentenceEncoder:
    """Sentences to embeddings: the tokenizer (package tokenizers) and the model of a folder.

    folder: as for Bert, with tokenizer.json. What sentence-transformers' files and tokenizer_config.json say is applied as
      sentence-transformers applies it; a folder with a setting that is not supported is refused by the setting's name.
    """

    __slots__ = ("_tokenizer", "bert")

    bert: Bert  # the model, on token ids

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        text_package("tokenizers", "SentenceEncoder")
        self.bert = Bert(folder)
        self._tokenizer = tokenizer_of(Path(self.bert.folder), self.bert.config)

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids, with those that begin and end a sentence, at most max_seq_length."""
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
        """Embeddings, float32: [sentences, embedding_size], or [embedding_size] of a single text.

        batch_size: texts that are in work at a time; it changes no result, and hardly the time, since nothing is padded.
        pooling: as of Bert.embed(), without "none"; normalize: rows to length 1; both as the folder says if None.
        num_threads: for this call; num_threads() if None.
        prompt: stands before each text; prompt_name: that of the folder's config.prompts. If both are None, the one that the
          folder has as default, if any; "" is none.

        Longer texts count up to max_seq_length tokens.
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
                "encode: pooling is 'none', which gives no embedding; bert.encode gives the states of tokens"
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
        """What stands before each text."""
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
        """Tokens at the beginning of each sentence that are not pooled: the prompt's, and what begins a sentence."""
        if not prompt or self.bert.config.include_prompt:
            return 0
        ids = self.tokenize([prompt])[0]
        special = {i for i, token in self._tokenizer.get_added_tokens_decoder().items() if token.special}
        return len(ids) - bool(ids and ids[-1] in special)

    def __reduce__(self) -> tuple[Any, ...]:
        return SentenceEncoder, self.bert.__reduce__()[1]

    def __repr__(self) -> str:
        return f"SentenceEncoder({self.bert!r})"
