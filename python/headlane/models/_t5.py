"""T5, for token ids."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import _core
from .._immutable import itself
from .._team import refused_together
from .._types import ActivationDType, DType, GenerateOptions, Unpack
from ._text import checked_count, folder_path

if TYPE_CHECKING:
    from ..mpi import Communicator


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

    It is pickled as the path of its folder. A generation setting of the folder that generate() does not
    have, such as do_sample, is ignored with a warning; config.unsupported lists them.

    Args:
        folder: A folder with config.json, of model_type "t5" or "mt5", weights in safetensors, and
            generation_config.json if present.
        weights: How weights are stored: the dtype of a PackedMatrix.
            Sums are computed in float32 all the same. Weights that compressed-tensors quantised stay as
            they are.
        activations: With weights of such a type, "int8" makes products those of integers, "bfloat16"
            those of bfloat16, as in linear(): faster, with a larger error, which may change tokens.
        team: Ranks that compute the model together, each with its share of the weights (tensor parallelism):
            every rank makes the same calls, and has the bits of one process. It cannot be pickled then.

    Raises:
        CheckpointError: The folder cannot be read as a model. The message names the file, the key or
            tensor, and the reason.
    """

    __slots__ = ("_activations", "_config", "_folder", "_t5", "_team", "_weights")

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        weights: DType = "float32",
        activations: ActivationDType = "float32",
        team: Communicator | None = None,
    ) -> None:
        self._team = None if team is None else _core.MpiTeam(team)
        with refused_together(self._team, "T5", "T5"):
            self._folder = folder_path("T5", folder)
        self._t5 = _core.T5(os.fsencode(self._folder), weights, activations, self._team)
        self._weights = weights
        self._activations = activations
        self._config = T5Config(**self._t5.config)
        for name in self._config.unsupported:
            warnings.warn(f"T5: the model's setting {name} is ignored", stacklevel=2)

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

    @property
    def activations(self) -> ActivationDType:
        """The type of activations in products."""
        return self._activations

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
        with refused_together(self._team, "generate", "T5::generate"):
            all_options = self._options(task, options)
        return self._t5.generate(ids, **all_options, num_threads=num_threads)

    def _options(self, task: str | None, options: GenerateOptions) -> dict[str, Any]:
        all_options = self.defaults(task)
        given: dict[str, Any] = dict(options)
        if "max_new_tokens" in given:
            if "max_length" in given:
                raise ValueError("generate: both max_length and max_new_tokens are given")
            given["max_length"] = 1 + checked_count("generate", "max_new_tokens", given.pop("max_new_tokens"))
        unknown = given.keys() - all_options.keys()
        if unknown:
            raise TypeError(f"generate: unexpected options: {', '.join(sorted(unknown))}")
        return {**all_options, **given}

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
        if self._team is not None:
            raise TypeError("T5: a model of a team is not pickled: each rank reads its own share")
        return _t5, (self._folder, self._weights, self._activations)

    def __repr__(self) -> str:
        c = self._config
        return f"T5({c.num_layers} + {c.num_decoder_layers} layers, {c.num_heads} heads, d_model {c.d_model})"


def _t5(folder: str, weights: DType, activations: ActivationDType) -> T5:
    return T5(folder, weights=weights, activations=activations)
