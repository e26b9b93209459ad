"""One measurement: a shape, the work in one call, and the limit it is held against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

FLOAT = 4  # bytes


@dataclass(frozen=True)
class Phase:
    """A part of a call that takes at least as long as its operations or as its memory takes, whichever is longer. The
    kernels take one step of the FMA units for each multiplication or fma of an exponential, an activation or a
    norm; additions, shuffles and divisions have units of their own."""

    flops: float  # of products
    steps: float = 0  # of single elements
    read: float = 0  # bytes
    written: float = 0  # bytes
    buffer: float = 0  # bytes that are read again and again; 0: read once


# Steps for each element, counted in exp.hpp, activation.hpp and piecewise.hpp of src/kernels/simd,
# and in softmax_row.hpp and norm_row.hpp of src/kernels/rowwise.
STEPS = {
    "exponential": 8,
    "softmax": 9,
    "layer_norm": 3,
    "rms_norm": 3,
    "gelu": 9,
    "sigmoid": 8,
    "tanh": 8,
}


@dataclass(frozen=True)
class Case:
    op: str  # "gemm", "lowbit", "softmax", "norms", "layers", or one of ATTENTION_OPS ("decode": one query row)
    label: str
    shape: dict[str, Any]
    flops: float  # useful floating-point operations of one call
    bytes: int  # each operand once
    limit: str  # "fma", "read" or "copy"
    limit_bytes: int = 0  # of the buffer that is read or copied for the limit
    quick: bool = False  # part of --quick
    needs: frozenset[str] = frozenset()  # what not every contender can do
    base: str = ""  # the label of the case without the option: what the option costs is told against it
    phases: tuple[Phase, ...] = ()  # the roofline is the sum of their times; none: it is not told

    @property
    def worker_op(self) -> str:
        return "attention" if self.op in ATTENTION_OPS else self.op

    @property
    def tolerance(self) -> float:
        """Errors beyond this, in their unit, come from no rounding to float32: those stay far below."""
        s = self.shape
        return {
            "gemm": lambda: 8 + 8 * s["k"] ** 0.5,
            # 8, 8, 4 and 8 bits of a weight, and as many of an activation
            "lowbit": lambda: {"bfloat16": 2**17, "w8": 2**17, "w4": 2**21, "w8a8": 2**18}[s["mode"]],
            "softmax": lambda: 64,
            "attention": lambda: STORED_KEYS.get(
                s.get("stored"), 8 + 8 * (s["head_dim"] + s["kv_length"]) ** 0.5
            ),
            "norms": lambda: 64,
            "layers": lambda: 8 + 8 * (s["d_ff"] + s["length"]) ** 0.5,
        }[self.worker_op]()


STORED_KEYS = {"bfloat16": 2**17, "int8": 2**18}  # as 8 and 7 bits of a key and of a value
ATTENTION_OPS = ("attention", "attention_options", "decode", "memory")
ERROR_UNIT = {
    "gemm": "eps·Σ|a||b|",
    "lowbit": "eps·Σ|a||b|",
    "softmax": "eps·(y + 2^-126)",
    **dict.fromkeys(ATTENTION_OPS, "eps·Σ p|v|"),
    "norms": "eps·(|w| + |y|), GELU: eps·|x|",
    "layers": "eps·rms(row of y)",
    "t5": "share of tokens that differ",
    "minilm": "eps·rms(row of y)",
    **dict.fromkeys(("sentences", "encode", "prefill", "generate"), "eps·rms(row of y)"),
}
