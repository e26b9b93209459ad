"""What is measured: the shapes, the work in one call, and the limit it is held against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

FLOAT = 4  # bytes


@dataclass(frozen=True)
class Case:
    op: str  # "gemm", "softmax", "attention" or "decode", which is attention with one query row
    label: str
    shape: dict[str, Any]
    flops: float  # useful floating-point operations of one call
    bytes: int  # each operand once
    limit: str  # "fma", "read" or "copy"
    limit_bytes: int = 0  # of the buffer that is read or copied for the limit
    quick: bool = False  # part of --quick

    @property
    def worker_op(self) -> str:
        return "attention" if self.op == "decode" else self.op

    @property
    def tolerance(self) -> float:
        """Errors beyond this, in their unit, come from no rounding to float32: those stay far below."""
        s = self.shape
        return {
            "gemm": lambda: 8 + 8 * s["k"] ** 0.5,
            "softmax": lambda: 64,
            "attention": lambda: 8 + 8 * (s["head_dim"] + s["kv_length"]) ** 0.5,
        }[self.worker_op]()


ERROR_UNIT = {
    "gemm": "eps·Σ|a||b|",
    "softmax": "eps·(y + 2^-126)",
    "attention": "eps·Σ p|v|",
    "decode": "eps·Σ p|v|",
}


def gemm(m: int, n: int, k: int, quick: bool = False) -> Case:
    """One row streams the matrix b, so that memory is the limit."""
    shape = {"m": m, "n": n, "k": k}
    kind = ("read", FLOAT * k * n) if m == 1 else ("fma", 0)
    return Case(
        "gemm", f"{m}x{n}x{k}", shape, 2 * m * n * k, FLOAT * (m * k + k * n + m * n), *kind, quick=quick
    )


def softmax(rows: int, columns: int, quick: bool = False) -> Case:
    """Five operations an element: maximum, difference, exponential, sum, quotient."""
    size = rows * columns
    return Case(
        "softmax",
        f"{rows}x{columns}",
        {"rows": rows, "columns": columns},
        5 * size,
        2 * FLOAT * size,
        "copy",
        FLOAT * size,
        quick,
    )


def attention(
    q_length: int,
    kv_length: int | None = None,
    *,
    batch: int = 1,
    causal: bool = False,
    mask: str | None = None,
    quick: bool = False,
) -> Case:
    """Eight heads of 64. Counted are the pairs of a query and a key that it may see."""
    heads, dim = 8, 64
    decode = kv_length is not None
    keys = kv_length or q_length
    shape = {"batch": batch, "heads": heads, "q_length": q_length, "kv_length": keys, "head_dim": dim}
    seen = {"bool": padded(keys)}.get(mask or "", keys)
    pairs = q_length * (q_length + 1) // 2 if causal else q_length * seen
    moved = FLOAT * batch * heads * dim * (2 * q_length + 2 * seen)
    masks = {"bool": batch * keys, "float": FLOAT * heads * q_length * keys}.get(mask or "", 0)
    name = f"{keys} keys" if decode else f"L={q_length}"
    label = (
        (f"{batch}x" if batch > 1 else "")
        + name
        + (" causal" if causal else "")
        + (f" {mask} mask" if mask else "")
    )
    return Case(
        "decode" if decode else "attention",
        label,
        {**shape, "causal": causal, "mask": mask},
        4 * batch * heads * pairs * dim,
        moved + masks,
        "read" if decode else "fma",
        2 * FLOAT * batch * heads * dim * keys if decode else 0,
        quick,
    )


def padded(length: int) -> int:
    """The keys that the padding mask lets be seen: the last quarter is padding."""
    return length - length // 4


GEMM = [
    gemm(1, 512, 512, True),
    gemm(8, 512, 512),
    gemm(32, 512, 512, True),
    gemm(128, 512, 512),
    gemm(512, 512, 512, True),
    gemm(2048, 512, 512),
    gemm(512, 1536, 512),
    gemm(512, 2048, 512),
    gemm(512, 512, 2048),
    gemm(2048, 2048, 2048),
    gemm(512, 512, 64),
    gemm(512, 64, 512),
    gemm(2048, 2048, 64),
    gemm(128, 128, 64),
    gemm(64, 64, 64, True),
    gemm(17, 33, 65),
]
SOFTMAX = [
    softmax(512, 64, True),
    softmax(4096, 128),
    softmax(4096, 512, True),
    softmax(512, 4096),
    softmax(16384, 2048),
]
LENGTHS = (16, 64, 128, 512, 1024, 2048, 4096)
ATTENTION = [
    *(attention(length, quick=length in (16, 128, 512)) for length in LENGTHS),
    *(attention(length, causal=True, quick=length == 512) for length in LENGTHS),
    attention(512, mask="bool"),
    attention(512, mask="float"),
    attention(128, batch=32),
    attention(32, batch=64),
    attention(1, 512, quick=True),
    attention(1, 4096),
    attention(1, 1024, batch=8),
]
ALL = {"gemm": GEMM, "softmax": SOFTMAX, "attention": ATTENTION}
