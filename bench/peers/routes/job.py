"""The contenders of the Python route, each in the fastest way its users would call it: what can be prepared,
such as a compiled model or a bound output, is, and only the call is timed. A process imports one library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable

import numpy as np


@dataclass
class Job:
    call: Callable[[], Any]
    result: Callable[[Any], np.ndarray]  # of what call returned
    keep: Any = None  # memory that the library holds no reference to
    seconds: Callable[[], float] | None = None  # calls, and times only the part that counts


class Route:
    """What a contender does; those that lack an operation are not asked for it."""

    about: str
    gemm: Callable[[np.ndarray, np.ndarray, np.ndarray], Job]
    lowbit: Callable[[str, np.ndarray, np.ndarray, np.ndarray], Job]  # mode, a, b, out
    softmax: Callable[[np.ndarray, np.ndarray | None, np.ndarray], Job]  # x, mask, out
    attention: Callable[
        [np.ndarray, np.ndarray, np.ndarray, np.ndarray | None, bool, np.ndarray], Job
    ]  # q, k, v, mask, causal, out; the mask is a bool or a bias and broadcasts

    def ragged_attention(self, q, k, v, lengths, out) -> Job:
        """Sentences padded to the longest, lengths int64 [batch]: for most, a mask of the padding."""
        mask = np.arange(k.shape[2]) < lengths[:, None, None, None]
        return self.attention(q, k, v, mask, False, out)

    norm: Callable[
        [str, np.ndarray, np.ndarray | None, np.ndarray | None, np.ndarray], Job
    ]  # kind, x, weight, bias, out
    layer: Callable[
        [str, np.ndarray, dict[str, np.ndarray], int, np.ndarray], Job
    ]  # kind, x, weights, heads, out
