"""The tables of scaling.md: what headlane_scaling prints, which is docs/data/scaling.csv."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path

from . import measured
from .measured import Machine

DATA = Path(__file__).parents[1] / "data" / "scaling.csv"
ASSUMPTIONS = ("core_gflops", "core_gbytes", "region_microseconds")


@dataclass
class Row:
    case: str
    cores: int
    tasks: int
    socket_gbytes: float
    limit: str
    microseconds: float
    share: float  # of the socket's limit
    share_apart: float  # the same, if no task finds in a cache what another one has read


def load(path: Path = DATA) -> tuple[dict[str, str], list[Row]]:
    """The assumptions, and the rows."""
    with path.open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    rows = [
        Row(
            line["case"],
            int(line["cores"]),
            int(line["tasks"]),
            *(float(line["socket_gbytes"]), line["limit"], float(line["microseconds"])),
            *(float(line["share"]), float(line["share_apart"])),
        )
        for line in lines
    ]
    return {name: lines[0][name] for name in ASSUMPTIONS}, rows


def values() -> dict[str, str]:
    assumptions, rows = load()
    simulated = [row for row in rows if row.cores > 2]
    return assumptions | {
        "sockets": ", ".join(
            f"{row.cores} cores {row.socket_gbytes:.0f} GB/s"
            for row in simulated
            if row.case == simulated[0].case
        ),
        "simulated": table(simulated),
        "checked": check(rows, measured.machines()[0]),
    }


def table(rows: list[Row]) -> str:
    counts = sorted({row.cores for row in rows})
    lines = [
        "| case | limit |" + "".join(f" {count} cores | tasks |" for count in counts),
        "|---|---|" + "---:|---:|" * len(counts),
    ]
    for case in dict.fromkeys(row.case for row in rows):
        found = {row.cores: row for row in rows if row.case == case}
        cells = [written(case), found[counts[-1]].limit]
        for count in counts:
            row = found[count]
            cells += [f"{time(row.microseconds)}, {shares(row)}", str(row.tasks)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def shares(row: Row) -> str:
    """One figure where the two agree."""
    text = f"{row.share:.0%}"
    return text if row.share - row.share_apart < 0.01 else f"{text} ({row.share_apart:.0%})"


def check(rows: list[Row], machine: Machine) -> str:
    """The speed of two threads over that of one, in the model and as measured."""
    times = {(row.case, row.cores): row.microseconds for row in rows}
    speeds = {(f"{row.op} {row.case}", row.threads): row.ours for row in machine.rows if not row.prepacked}
    lines = ["| case | in the model | measured |", "|---|---:|---:|"]
    for case in dict.fromkeys(row.case for row in rows):
        if (case, 1) in speeds and (case, 2) in speeds:
            model = times[case, 1] / times[case, 2]
            lines.append(f"| {written(case)} | {model:.2f} | {speeds[case, 2] / speeds[case, 1]:.2f} |")
    return "\n".join(lines)


def written(case: str) -> str:
    return re.sub(r"(\d)x(?=[\dL])", r"\1 × ", case).replace("L=", "L = ").replace("gemm", "GEMM")


def time(microseconds: float) -> str:
    return f"{microseconds:,.0f} µs" if microseconds < 1e4 else f"{microseconds / 1e3:,.0f} ms"
