"""Types that signatures share."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Optional, TypedDict, TypeVar, Union

if sys.version_info >= (3, 11):
    from typing import Unpack
elif TYPE_CHECKING:
    from typing_extensions import Unpack
else:  # for typing.get_type_hints()
    Unpack = Optional

# Arrays of NumPy, PyTorch and whatever else has DLPack. A function that takes and gives Array gives the kind that it took.
Array = TypeVar("Array")
State = Mapping[str, Any]
Sequences = Union[int, Iterable[int]]


class InnerOptions(TypedDict, total=False):
    """The options of scaled_dot_product_attention that are given by name only."""

    causal_offset: Any
    softcap: float
    window: tuple[int | None, int | None] | None
    key_lengths: Any
    query_lengths: Any
    alibi_slopes: Any
    sinks: Any
    mask_bits: Any
    relative_bias: Any
    relative_max_distance: int
    relative_bidirectional: bool
    query_starts: Any
    key_starts: Any


class ScoreOptions(InnerOptions, total=False):
    """All of its options that say what is seen and what is added to the scores, but for the mask."""

    is_causal: bool
    scale: float | None


class MaskedScoreOptions(ScoreOptions, total=False):
    """The same with the mask."""

    attn_mask: Any


class GenerateOptions(TypedDict, total=False):
    """The options of T5.generate(), with the names and meanings of transformers."""

    num_beams: int
    max_length: int
    max_new_tokens: int
    min_length: int
    length_penalty: float
    early_stopping: bool | str
    no_repeat_ngram_size: int


__all__ = [
    "Array",
    "GenerateOptions",
    "InnerOptions",
    "MaskedScoreOptions",
    "ScoreOptions",
    "Sequences",
    "State",
    "Unpack",
]
