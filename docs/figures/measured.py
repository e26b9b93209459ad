"""The measurements that the site shows: docs/data/peers-MACHINE.json, made from the files of ./dev peers.

    PYTHONPATH=docs python3 -m figures.measured zen5 build/peers/*.json

replaces the operations in these files and keeps those that they lack. Each run keeps its date, versions and
limits. Speeds are in the unit of the operation; "limit" is what the machine allows, and
"roofline" what it allows for all of the work, measured beside them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from report.data import OPERATIONS, ROUNDED, Report, same_route
from report.load import load

SCHEMA = "headlane-docs-peers-1"
FOLDER = Path(__file__).parents[1] / "data"
OURS, PACKED = "headlane", " prepacked"


@dataclass
class Row:
    """A case with a number of threads: headlane beside those who are called the same way and do the same work."""

    op: str
    case: str
    threads: int
    speeds: dict[str, float]
    route: str = ""
    prepacked: bool = False
    limit: float | None = None
    roofline: float | None = None
    cost: float | None = None  # of an option: the time for as much work, over that without it
    isas: dict[str, float] = field(default_factory=dict)  # headlane's speed with other instruction sets

    @property
    def ours(self) -> float:
        return self.speeds[OURS]

    @property
    def best(self) -> tuple[str, float] | None:
        """The fastest other contender that computes in float32: weights of fewer bits return other results."""
        peers = [(name, speed) for name, speed in self.speeds.items() if name != OURS and not rounded(name)]
        return max(peers, key=lambda peer: peer[1], default=None)

    @property
    def ratio(self) -> float | None:
        return self.ours / self.best[1] if self.best else None

    @property
    def share(self) -> float | None:
        return self.ours / self.limit if self.limit else None

    @property
    def roofline_share(self) -> float | None:
        return self.ours / self.roofline if self.roofline else None


@dataclass
class Run:
    """What a file of ./dev peers says of itself."""

    ops: list[str]
    date: str
    headlane: str
    compiler: str
    contenders: dict[str, str | None] = field(default_factory=dict)
    fma_gflops: dict[str, float] = field(default_factory=dict)
    os: str = ""
    commit: str = ""
    busy: float = 0.0
    source: str = ""  # where the figures are from, unless from a file of ./dev peers


@dataclass
class Machine:
    name: str
    cpu: str
    cores: int
    runs: list[Run] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    @property
    def date(self) -> str:
        return max(run.date for run in self.runs)

    def of(self, op: str) -> list[Row]:
        return [row for row in self.rows if row.op == op]

    def find(self, op: str, case: str, threads: int, prepacked: bool = False) -> Row | None:
        wanted = (op, case, threads, prepacked)
        return next((r for r in self.rows if (r.op, r.case, r.threads, r.prepacked) == wanted), None)


def parse(path: Path) -> Machine:
    document = json.loads(path.read_text(encoding="utf-8"))
    if document["schema"] != SCHEMA:
        raise ValueError(f"{path}: its schema is not {SCHEMA}")
    runs = [Run(**run) for run in document["runs"]]
    return Machine(
        path.stem.removeprefix("peers-"),
        runs=runs,
        rows=[Row(**row) for row in document["rows"]],
        **document["machine"],
    )


def machines() -> list[Machine]:
    """All of them, the one with the most cases first, which the README shows; of as many, the one measured last."""
    found = [parse(path) for path in FOLDER.glob("peers-*.json")]
    return sorted(found, key=lambda m: (len(m.rows), m.date), reverse=True)


def save(machine: Machine) -> Path:
    """A line for each run and row, so that a new measurement is a readable change."""
    used = {op for run in machine.runs for op in run.ops}
    entries = {
        "schema": json.dumps(SCHEMA),
        "machine": json.dumps({"cpu": machine.cpu, "cores": machine.cores}, ensure_ascii=False),
        "runs": _lines(vars(run) for run in machine.runs),
        "rows": _lines(vars(row) for row in machine.rows if row.op in used),
    }
    body = ",\n".join(f' "{name}": {entry}' for name, entry in entries.items())
    path = FOLDER / f"peers-{machine.name}.json"
    path.write_text(f"{{\n{body}\n}}\n", encoding="utf-8")
    return path


def _lines(entries: Iterable[dict]) -> str:
    written = [{key: value for key, value in entry.items() if value or key == "ops"} for entry in entries]
    return "[\n" + ",\n".join("  " + json.dumps(entry, ensure_ascii=False) for entry in written) + "\n ]"


def refresh(machine: Machine, report: Report) -> None:
    """Takes over the operations of a file of ./dev peers."""
    new = run_of(report)
    for run in machine.runs:
        run.ops = [op for op in run.ops if op not in new.ops]
    machine.runs = [run for run in machine.runs if run.ops] + [new]
    machine.rows = [row for row in machine.rows if row.op not in new.ops] + rows_of(report)
    place = {op: number for number, op in enumerate(OPERATIONS)}
    machine.runs.sort(key=lambda run: min(place[op] for op in run.ops))
    machine.rows.sort(key=lambda row: place[row.op])


def ops_of(report: Report) -> list[str]:
    return [op for op in report.ops() if op in OPERATIONS]


def run_of(report: Report) -> Run:
    (document,) = report.runs
    about = document["machine"]
    peers = [c for c in report.contenders() if not c["name"].startswith(OURS)]
    widest = report.isas()[:1]
    return Run(
        ops=ops_of(report),
        date=document["date"][:10],
        headlane=document["headlane"],
        compiler=about["compiler"],
        contenders={
            c["name"].removesuffix(PACKED): c["version"] for c in sorted(peers, key=lambda c: c["name"])
        },
        fma_gflops={
            str(count): round(entry["fma_gflops"])
            for (isa, count), entry in report.limits().items()
            if isa in widest
        },
        os=about["os"],
        commit=document["commit"] + (" and changes" if document["modified"] else ""),
        busy=about["busy"],
    )


def rows_of(report: Report) -> list[Row]:
    """headlane with the widest instruction set, called as the fastest peer is. Weights of fewer
    bits are cases of their own."""
    groups: dict[tuple, list] = {}
    for op in ops_of(report):
        for result in report.select(op):
            variant = result.contender.rpartition(" ")[2] if result.rounded else ""
            if result.headlane:
                variant = result.contender.removeprefix(OURS).strip()
            plain = variant in ("", "(Python)") or result.prepacked
            case = result.case if plain else f"{result.case}, {variant}"
            groups.setdefault((op, case, result.threads, result.prepacked), []).append(result)
    made = (_row(key, results) for key, results in groups.items())
    rows = [row for row in made if row is not None]
    costs, slower = costs_of(report), slower_isas(report)
    for row in rows:
        if not row.prepacked:
            row.cost = costs.get((row.op, row.case, row.threads))
            row.isas = slower.get((row.op, row.case, row.threads), {})
    return rows


def costs_of(report: Report) -> dict[tuple, float]:
    """What options of attention cost, called from C++. The peaks were measured beside both times."""
    (document,) = report.runs
    shares, bases = {}, {}
    for entry in document["results"]:
        if entry["contender"] == OURS and entry["isa"] in report.isas()[:1] and entry.get("limit"):
            key = entry["op"], entry["case"], entry["threads"]
            shares.setdefault(key, entry["limit"]["seconds"] / entry["seconds"])
            if entry.get("base"):
                bases[key] = entry["base"]
    costs = {}
    for (op, case, threads), base in bases.items():
        without = shares.get((op, base, threads)) or shares.get(("attention", base, threads))
        if without:
            costs[op, case, threads] = round(without / shares[op, case, threads], 3)
    return costs


def slower_isas(report: Report) -> dict[tuple, dict[str, float]]:
    """headlane's speeds, called from C++, with the instruction sets that are not the widest."""
    found: dict[tuple, dict[str, float]] = {}
    for result in report.rows:
        if result.contender == OURS and result.isa in report.isas()[1:]:
            found.setdefault((result.op, result.case, result.threads), {})[result.isa] = _digits(result.speed)
    return found


def _row(key: tuple, results: list) -> Row | None:
    op, case, threads, prepacked = key
    peers = [result for result in results if not result.headlane]
    ours = same_route([result for result in results if result.headlane], peers)
    if ours is None:
        return None
    speeds = {OURS: _digits(ours.speed)}
    speeds |= {_name(peer.contender): _digits(peer.speed) for peer in peers}
    limit, roofline = (
        _digits(ours.speed_in(seconds)) if seconds else None for seconds in (ours.limit, ours.roofline)
    )
    return Row(op, case, threads, speeds, ours.route or "", prepacked, limit, roofline)


def _name(contender: str) -> str:
    """Without what the case says."""
    plain = contender.removesuffix(PACKED)
    return plain.rpartition(" ")[0] if rounded(plain) else plain


def rounded(contender: str) -> bool:
    return contender.endswith(tuple(f" {kind}" for kind in ROUNDED))


def _digits(value: float) -> float:
    """Four digits: more than a measurement has."""
    return float(f"{value:.4g}")


def main(name: str, files: list[Path]) -> None:
    path = FOLDER / f"peers-{name}.json"
    reports = [load([file]) for file in files]
    about = reports[0].runs[0]["machine"]
    machine = parse(path) if path.exists() else Machine(name, about["cpu"], about["cores"])
    for report in reports:
        if ops_of(report):
            refresh(machine, report)
    print(save(machine))


if __name__ == "__main__":
    main(sys.argv[1], [Path(file) for file in sys.argv[2:]])
