"""The targets of headlane.torch, and the lines that miss them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

from ..cases.pytorch import SHAPES
from .models import OURS
from .operations import _percent, _times, console
from .pytorch import Line, lines, new_table

BFLOAT16, INT8_WEIGHTS, INT8 = (f"{OURS} {words}" for words in ("weights bfloat16", "weights int8", "int8"))
BFLOAT16_MODEL = f"{OURS} model bfloat16"
EAGER, EAGER_BFLOAT16, EAGER_INT8 = "PyTorch", "PyTorch bfloat16", "PyTorch int8"
OPTIMISE_SECONDS, CALL_SECONDS = 1.0, 5e-6
PEAK = 1.02  # one layer is there twice


@dataclass(frozen=True)
class Target:
    title: str
    least: float
    value: Callable[[Line], float | None]
    applies: Callable[[str, str], bool]  # to an op and a case
    show: Callable[[float | None], str] = _times


@dataclass
class Outcome:
    title: str
    least: str
    missed: list[str]
    count: int  # of what was measured


def one_sequence(op: str, case: str) -> bool:
    """Steps that read the weights for one row."""
    return op == "generate" and case.endswith("batch 1")


def ratio(name: str, against: str = "") -> Callable[[Line], float | None]:
    return lambda line: line.ratio(name, against)


def of(op: str) -> Callable[[str, str], bool]:
    return lambda kind, case: kind == op


TARGETS = [
    Target("float32 / best of PyTorch", 1.25, ratio(OURS), lambda *what: not one_sequence(*what)),
    Target("of the read bandwidth", 0.9, lambda line: line.share(OURS), one_sequence, _percent),
    Target("weights bfloat16 / eager", 1.8, ratio(BFLOAT16, EAGER), of("generate")),
    Target("weights int8 / eager", 3, ratio(INT8_WEIGHTS, EAGER), of("generate")),
    Target("model bfloat16 / PyTorch bfloat16", 1, ratio(BFLOAT16_MODEL, EAGER_BFLOAT16), lambda *what: True),
    Target("int8 / eager", 1.8, ratio(INT8, EAGER), of("encode")),
    Target("int8 / PyTorch int8", 1.2, ratio(INT8, EAGER_INT8), of("encode")),
]


def outcomes(document: dict) -> list[Outcome]:
    """Of the targets for which something was measured."""
    made = [_outcome(document, target) for target in TARGETS] + _costs(document)
    return [outcome for outcome in made if outcome.count]


def _outcome(document: dict, target: Target) -> Outcome:
    missed, count = [], 0
    for op in ("encode", "prefill", "generate"):
        for (case, threads), line in lines(document, op).items():
            value = target.value(line) if target.applies(op, case) else None
            if value is None:
                continue
            count += 1
            if value < target.least:
                missed.append(f"{op} {case}, threads: {threads}: {target.show(value)}")
    return Outcome(target.title, f"at least {target.show(target.least)}", missed, count)


def _costs(document: dict) -> list[Outcome]:
    rows = document["optimise"]
    base = [row for row in rows if row["model"] == "bert-base"]
    calls = [row for row in document["call"] if row["contender"].startswith(OURS)]

    def where(row: dict) -> str:
        source = (
            f"{SHAPES[row['model']].title}{' loaded' if row['loaded'] else ''}, " if "model" in row else ""
        )
        return f"{source}{row['contender']}, threads: {row['threads']}"

    def outcome(title: str, most: str, rows: list[dict], missed: Callable, show: Callable) -> Outcome:
        return Outcome(title, most, [f"{where(row)}: {show(row)}" for row in rows if missed(row)], len(rows))

    def mib(name: str, than: str) -> Callable[[dict], str]:
        return lambda row: f"{row[name] / (1 << 20):.0f} MiB, not {row[than] / (1 << 20):.0f}"

    return [
        outcome(
            "time to optimise BERT-base",
            f"at most {OPTIMISE_SECONDS:.0f} s",
            base,
            lambda row: row["seconds"] > OPTIMISE_SECONDS,
            lambda row: f"{row['seconds']:.2f} s",
        ),
        outcome(
            "peak memory while optimising",
            "at most eager's + 2 %",
            rows,
            lambda row: row["peak"] > PEAK * row["eager_peak"],
            mib("peak", "eager_peak"),
        ),
        outcome(
            "memory afterwards",
            "less than eager's",
            rows,
            lambda row: row["optimised"] >= row["eager"],
            mib("optimised", "eager"),
        ),
        outcome(
            "a call of a small layer",
            f"at most {1e6 * CALL_SECONDS:.0f} µs",
            calls,
            lambda row: row["seconds"] > CALL_SECONDS,
            lambda row: f"{1e6 * row['seconds']:.2f} µs",
        ),
    ]


def print_targets(document: dict) -> None:
    found = outcomes(document)
    if not found:
        return
    made = new_table("Targets", ["what", "target", "met"])
    for outcome in found:
        made.add_row(
            outcome.title, outcome.least, f"{outcome.count - len(outcome.missed)} of {outcome.count}"
        )
    console.print(made)
    for outcome in found:
        for line in outcome.missed:
            console.print(f"missed: {outcome.title}: {line}", markup=False, soft_wrap=True)
