"""Bert: BERT-style encoders, for token ids."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import _core
from .._immutable import itself
from .._team import refused_together
from .._types import ActivationDType, DType
from ._text import folder_path

if TYPE_CHECKING:
    from ..mpi import Communicator


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
        weights: How weights are stored: the dtype of a PackedMatrix.
            Sums are computed in float32 all the same. Weights that compressed-tensors quantised stay as
            they are.
        activations: With weights of such a type, "int8" makes products those of integers, "bfloat16"
            those of bfloat16, as in linear(): faster, with a larger error.
        team: Ranks that compute the model together, each with its share of the weights (tensor parallelism):
            every rank makes the same calls, and has the bits of one process. It cannot be pickled then.

    Raises:
        CheckpointError: The folder cannot be read as a model. The message names the file, the key or
            tensor, and the reason.
    """

    __slots__ = ("_activations", "_bert", "_config", "_given", "_team", "_weights")

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        weights: DType = "float32",
        activations: ActivationDType = "float32",
        team: Communicator | None = None,
    ) -> None:
        self._team = None if team is None else _core.MpiTeam(team)
        with refused_together(self._team, "Bert", "Bert"):
            self._given = folder_path("Bert", folder)
        self._bert = _core.Bert(os.fsencode(self._given), weights, activations, self._team)
        self._weights = weights
        self._activations = activations
        self._config = BertConfig(**self._bert.config)

    @property
    def config(self) -> BertConfig:
        """Sizes, and the defaults of embed()."""
        return self._config

    @property
    def weights(self) -> DType:
        """How weights are stored."""
        return self._weights

    @property
    def activations(self) -> ActivationDType:
        """The type of activations in products."""
        return self._activations

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
        if self._team is not None:
            raise TypeError("Bert: a model of a team is not pickled: each rank reads its own share")
        return _bert, (self._given, self._weights, self._activations)

    def __repr__(self) -> str:
        c = self._config
        sizes = f"{c.num_hidden_layers} layers, {c.num_attention_heads} heads, hidden_size {c.hidden_size}"
        return f"Bert({self.folder!r}: {sizes})"


def _bert(folder: str, weights: DType, activations: ActivationDType) -> Bert:
    return Bert(folder, weights=weights, activations=activations)
