"""Split-KV attention: combining partial results."""

from __future__ import annotations

from typing import Any, overload

from . import _core
from ._types import Array, MergeOptions, No, Parts, Unpack, Yes


@overload
def merge(
    parts: Parts[Array], *, return_lse: No = False, return_sum: No = False, **options: Unpack[MergeOptions]
) -> Array: ...


@overload
def merge(
    parts: Parts[Array], *, return_lse: Yes, return_sum: No = False, **options: Unpack[MergeOptions]
) -> tuple[Array, Array]: ...


@overload
def merge(
    parts: Parts[Array], *, return_lse: bool = False, return_sum: Yes, **options: Unpack[MergeOptions]
) -> tuple[Array, Array, Array]: ...


@overload
def merge(
    parts: Parts[Array],
    *,
    return_lse: bool = False,
    return_sum: bool = False,
    **options: Unpack[MergeOptions],
) -> Array | tuple[Array, ...]: ...


def merge(
    parts: Parts[Array],
    *,
    sinks: Any = None,
    return_lse: bool = False,
    return_sum: bool = False,
    out: Any = None,
    num_threads: int | None = None,
) -> Array | tuple[Array, ...]:
    """Attention over the keys of all parts: combines split-KV partial results.

    The keys of the parts must be disjoint. The result is bit-identical to attention over all keys if
    all parts have sums, each part begins at a multiple of 512 keys, and each but the first has at most
    512 keys.

    Args:
        parts: Results of scaled_dot_product_attention with return_lse, (out, lse), or with return_sum,
            (out, max, sum), in any mixture, all of one shape. Parts of bfloat16 or float16 queries
            have been rounded; to merge them in full precision, compute them with an out of float32.
        sinks: float32 [heads]; the parts must have been computed without sinks.
        return_lse: Return (out, lse).
        return_sum: Return (out, max, sum), again a partial result.
        out: Where to write the result; must not overlap any argument.
        num_threads: Maximum number of threads; num_threads() if None or 0.

    Returns:
        As scaled_dot_product_attention.
    """
    return _core.merge(parts, sinks, return_lse, return_sum, out, num_threads)
