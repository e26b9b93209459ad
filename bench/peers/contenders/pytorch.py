"""Who takes part in the measurements of PyTorch models."""

from __future__ import annotations

import sys

from ..cases.pytorch import OPS
from .contender import INDUCTOR, PYTHON, Contender

FORWARD = OPS[:2]
TYPES = ("", "weights bfloat16", "weights int8", "bfloat16", "model bfloat16", "int8", "weights int4")
LAST = ("optimise", "call")  # what is measured behind the cases
# Nothing that an earlier process compiled.
ANEW = (*INDUCTOR, ("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1"))


def one(name: str, key: str, ops: tuple[str, ...] = OPS, **more) -> Contender:
    return Contender(
        name, PYTHON, ops, (sys.executable, "-m", "peers.workers.pytorch", key, "{threads}"), **more
    )


def every() -> list[Contender]:
    ours = [
        one(f"headlane {words}".strip(), f"headlane {words}".strip().replace(" ", "-"), (*OPS, *LAST))
        for words in TYPES
    ]
    return [
        one("PyTorch", "eager", (*OPS, "call")),
        one("PyTorch prepacked", "prepacked"),
        one("PyTorch frozen", "frozen", FORWARD),  # the trace of a step would have one length of the cache
        one("PyTorch compiled", "compiled", forced=ANEW),
        *ours,
        one("PyTorch bfloat16", "eager-bfloat16"),
        one("PyTorch int8", "dynamic-int8"),
    ]


REFERENCE = {op: one("PyTorch", "eager", (op,)) for op in OPS}
