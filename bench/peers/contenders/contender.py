"""A contender: what it can do, and how a worker for it is started."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ..cases.case import Case

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "HEADLANE_NUM_THREADS",
)
COMPILED, PYTHON = "C++", "Python"
SLOW = ("scalar", "portable")
ROUNDED = ("int8", "int4", "bfloat16")  # weights of fewer bits, at the end of a name
# Weights as constants, which inductor packs; in one process, since a worker's children would not be
# stopped with it.
INDUCTOR = (("TORCHINDUCTOR_FREEZING", "1"), ("TORCHINDUCTOR_COMPILE_THREADS", "1"))


@dataclass(frozen=True)
class Contender:
    name: str
    route: str  # headlane is compared with those of the same route
    ops: tuple[str, ...]  # of gemm, softmax, attention, norms, layers; or a part of one, as decode
    command: tuple[str, ...]  # {threads} is replaced
    isa: str = ""  # headlane: the one to force; "" is the fastest
    forced: tuple[tuple[str, str], ...] = ()  # environment variables that choose the kernels
    prepacked: bool = False  # b was brought into a layout of the library's own beforehand: compared apart
    scores: int = 1 << 60  # at most so many pairs of query and key for each head
    can: frozenset[str] = frozenset()  # of what cases need
    patience: float = 120  # seconds that an answer may take

    @property
    def title(self) -> str:
        return f"{self.name} {self.isa}" if self.isa else self.name

    @property
    def rounded(self) -> bool:
        """With weights of fewer bits, and other results: compared apart."""
        return self.name.endswith(ROUNDED)

    def takes(self, case: Case, threads: int) -> bool:
        pairs = case.shape.get("q_length", 0) * case.shape.get("kv_length", 0)
        if not {case.op, case.worker_op} & set(self.ops) or pairs > self.scores or not case.needs <= self.can:
            return False
        return self.isa not in SLOW or (threads == 1 and case.flops < 1e10 and case.op != "attention_options")

    def start(self, threads: int) -> tuple[list[str], dict[str, str]]:
        """The command line and the environment."""
        environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads))}
        environment.pop("HEADLANE_ISA", None)
        if self.isa:
            environment["HEADLANE_ISA"] = self.isa
        environment.update(self.forced)
        return [word.replace("{threads}", str(threads)) for word in self.command], environment
