"""Positions: sinusoidal and rotary embeddings, ALiBi's slopes, T5's buckets."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _core
from ._types import Array


def sinusoidal_encoding(
    length: int,
    d_model: int,
    *,
    offset: int = 0,
    base: float = 10000.0,
    doubled_exponent: bool = False,
    interleaved: bool = True,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Any:
    """Sinusoidal position encoding (Vaswani et al. 2017).

    Column 2j of row i is sin((offset + i) * base ** (-2j / d_model)), column 2j + 1 the cosine of the
    same angle. The error is at most 1.4 ULP + 2^-48 + |position| * 2^-61.

    Args:
        length: The number of rows.
        d_model: The number of columns.
        offset: The position of the first row.
        base: Of the powers that are the frequencies.
        doubled_exponent: Use base ** (-4j / d_model), as some tutorials do.
        interleaved: False puts all sines before all cosines.
        out: Where to write the result, an array of any type.
        num_threads: Maximum number of threads; num_threads() if None or 0.

    Returns:
        [length, d_model]; a NumPy array if out is None.
    """
    return _core.sinusoidal_encoding(
        length, d_model, offset, base, doubled_exponent, interleaved, out, num_threads
    )


def add_sinusoidal_encoding(
    x: Array,
    scale: float = 1.0,
    *,
    offset: int = 0,
    base: float = 10000.0,
    doubled_exponent: bool = False,
    interleaved: bool = True,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """x * scale + sinusoidal_encoding, rounded once.

    Args:
        x: [..., length, d_model].
        scale: Factor of x; 0 means sqrt(d_model).
        offset: As in sinusoidal_encoding.
        base: As in sinusoidal_encoding.
        doubled_exponent: As in sinusoidal_encoding.
        interleaved: As in sinusoidal_encoding.
        out: Where to write the result; may be x itself.
        num_threads: Maximum number of threads; num_threads() if None or 0.

    Returns:
        An array of x's shape.
    """
    return _core.add_sinusoidal_encoding(
        x, scale, offset, base, doubled_exponent, interleaved, out, num_threads
    )


def rotary_embedding(
    x: Array,
    *,
    base: float = 10000.0,
    rotary_dim: int = 0,
    interleaved: bool = False,
    offset: int = 0,
    positions: Any = None,
    frequencies: Any = None,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """Rotary position embedding (Su et al. 2021): rotates pairs of elements by position * frequency.

    Args:
        x: [batch, heads, length, head_dim], or without the first one or two axes.
        base: Frequency j is base ** (-2j / rotary_dim). It is not rounded to float32, as it is in
            PyTorch models.
        rotary_dim: The number of elements of a head that are rotated, the first ones; the others are
            copied. 0: all.
        interleaved: True pairs 2j with 2j + 1 (GPT-J), False j with j + rotary_dim / 2 (Llama, GPT-NeoX).
        offset: The position of the first row.
        positions: integers [batch], added to the positions of a batch element; or [batch, length], added
            to offset, which then applies to all rows.
        frequencies: float32 [rotary_dim / 2], instead of those from base.
        out: Where to write the result; may be x itself.
        num_threads: Maximum number of threads; num_threads() if None or 0.

    Returns:
        An array of x's shape.
    """
    return _core.rotary_embedding(
        x, base, rotary_dim, interleaved, offset, positions, frequencies, out, num_threads
    )


def alibi_slopes(heads: int) -> np.ndarray:
    """The slopes of ALiBi (Press et al. 2022) for any number of heads, correctly rounded."""
    return _core.alibi_slopes(heads)


def t5_bucket(distance: int, buckets: int = 32, max_distance: int = 128, bidirectional: bool = True) -> int:
    """The bucket of T5's relative position bias.

    Args:
        distance: The position of the key minus that of the query.
        buckets: The number of buckets.
        max_distance: All distances from this one on share a bucket.
        bidirectional: Half of the buckets are for keys after the query; otherwise those share bucket 0.

    Returns:
        A bucket, 0 to buckets - 1.
    """
    return _core.t5_bucket(distance, buckets, max_distance, bidirectional)
