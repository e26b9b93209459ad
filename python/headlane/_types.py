"""Types that signatures share."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Optional, TypedDict, TypeVar, Union

if sys.version_info >= (3, 11):
    from typing import Unpack as Unpack
elif TYPE_CHECKING:
    from typing_extensions import Unpack as Unpack
else:  # for typing.get_type_hints()
    Unpack = Optional

# An array of NumPy, of PyTorch or of another library with DLPack; functions return the type they
# take.
Array = TypeVar("Array")
# A state dict.
State = Mapping[str, Any]
# Numbers of sequences of a KvCache.
Sequences = Union[int, Iterable[int]]
# The argument of merge(): tuples (out, lse) or (out, max, sum).
Parts = Sequence[tuple[Array, ...]]

# How the elements of a PackedMatrix and a KvCache are stored.
DType = Literal["float32", "bfloat16", "float16", "int8", "int8_group32", "int4_group32"]
CacheDType = Literal["float32", "bfloat16", "float16", "int8"]
# The type of activations in products: float32, or rounded to bfloat16, or to 8 bits row by row.
ActivationDType = Literal["float32", "bfloat16", "int8"]

# A value of the metadata of a GGUF file.
GgufValue = Union[bool, int, float, str, list[bool], list[int], list[float], list[str]]

# The values of flags that decide what a function returns.
No = Literal[False]
Yes = Literal[True]


class CallOptions(TypedDict, total=False):
    """Parameters of most functions, in overloads."""

    out: Any
    num_threads: int | None


class InnerOptions(TypedDict, total=False):
    """The options of scaled_dot_product_attention that are passed by name only."""

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
    """All options of attention but the mask."""

    is_causal: bool
    scale: float | None


class MaskedScoreOptions(ScoreOptions, total=False):
    """All options of attention."""

    attn_mask: Any


class InnerCallOptions(InnerOptions, CallOptions, total=False):
    """For the overloads of scaled_dot_product_attention."""


class ScoreCallOptions(ScoreOptions, CallOptions, total=False):
    """For the overloads of other functions of attention."""


class MergeOptions(CallOptions, total=False):
    """For the overloads of merge."""

    sinks: Any


class GenerateOptions(TypedDict, total=False):
    """The options of T5.generate(), with the names and meanings of transformers."""

    num_beams: int
    max_length: int
    max_new_tokens: int
    min_length: int
    length_penalty: float
    early_stopping: bool | str
    no_repeat_ngram_size: int
