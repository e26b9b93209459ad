"""The measurements that the site shows: docs/data/peers-MACHINE.json, made from the files of ./dev peers.

    PYTHONPATH=docs:bench python -m figures.measured zen5 build/peers/*.json

writes docs/data/peers-zen5.json anew with the operations in these files, and keeps those that they lack. Each run keeps its date,
versions and limits. Speeds are in the unit of the operation; "limit" is what the machine allows, measured beside them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

SCHEMA = "headlane-docs-peers-1"
FOLDER = Path(__file__).parents[1] / "data"
OURS = "headlane"


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

    @property
    def ours(self) -> float:
        return self.speeds[OURS]

    @property
    def best(self) -> tuple[str, float] | None:
        """The fastest other contender."""
        peers = [(name, speed) for name, speed in self.speeds.items() if name != OURS]
        return max(peers, key=lambda peer: peer[1], default=None)

    @property
    def ratio(self) -> float | None:
        return self.ours / self.best[1] if self.best else None

    @property
    def share(self) -> float | None:
        return self.ours / self.limit if self.limit else None


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


def load(path: Path) -> Machine:
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
    """All of them, the one measured last first."""
    return sorted((load(path) for path in FOLDER.glob("peers-*.json")), key=lambda m: m.date, reverse=True)


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


def refresh(machine: Machine, documents: list[dict]) -> None:
    for document in documents:
        new = run_of(document)
        for run in machine.runs:
            run.ops = [op for op in run.ops if op not in new.ops]
        machine.runs = [run for run in machine.runs if run.ops] + [new]
        machine.rows = [row for row in machine.rows if row.op not in new.ops] + rows_of(document)


def run_of(document: dict) -> Run:
    about = document["machine"]
    widest = about["limits"][0]["isa"] if about["limits"] else ""
    peers = [c for c in document["contenders"] if not c["name"].startswith(OURS)]
    return Run(
        ops=list(dict.fromkeys(row["op"] for row in document["results"])),
        date=document["date"][:10],
        headlane=document["headlane"],
        compiler=about["compiler"],
        contenders={c["name"]: c["version"] for c in sorted(peers, key=lambda c: c["name"])},
        fma_gflops={str(e["threads"]): round(e["fma_gflops"]) for e in about["limits"] if e["isa"] == widest},
        os=about["os"],
        commit=document["commit"] + (" and changes" if document["modified"] else ""),
        busy=about["busy"],
    )


def rows_of(document: dict) -> list[Row]:
    """headlane with the widest instruction set, from where the fastest peer is called."""
    kinds = {(c["name"], c["isa"]): c for c in document["contenders"]}
    limits = document["machine"]["limits"]
    plain = {result["case"] for result in document["results"] if result["op"] == "attention"}
    groups: dict[tuple, list[dict]] = {}
    for result in document["results"]:
        if result["op"] == "attention_options" and result["case"] in plain:
            continue  # timed again beside the options that are compared with it
        kind = kinds[result["contender"], result["isa"]]
        ours = result["contender"].startswith(OURS)
        if ours and result["isa"] and limits and result["isa"] != limits[0]["isa"]:
            continue
        variant = result["contender"].removeprefix(OURS).strip() if ours else ""
        variant = "" if variant in ("(Python)", "prepacked", "prepacked (Python)") else variant
        case = result["case"] + (f", {variant}" if variant else "")
        key = (result["op"], case, result["threads"], bool(kind["prepacked"]))
        groups.setdefault(key, []).append({**result, "route": kind["route"], "ours": ours})
    made = (_row(key, results) for key, results in groups.items())
    return [row for row in made if row is not None]


def _row(key: tuple, results: list[dict]) -> Row | None:
    op, case, threads, prepacked = key
    peers = [result for result in results if not result["ours"]]
    fastest = min(peers, key=lambda result: result["seconds"], default=None)
    own = [result for result in results if result["ours"]]
    if not own:
        return None
    ours = min(own, key=lambda result: fastest is not None and result["route"] != fastest["route"])
    speeds = {
        OURS: _speed(ours),
        **{peer["contender"].removesuffix(" prepacked"): _speed(peer) for peer in peers},
    }
    limit = (ours.get("limit") or {}).get("seconds")
    bound = _digits(amount(ours) / limit) if limit else None
    return Row(op, case, threads, speeds, ours["route"], prepacked, bound)


def amount(result: dict) -> float:
    """What a call achieves, in the unit of performance.UNITS times seconds."""
    shape = result["shape"]
    if result["op"] == "t5":
        return shape["batch"] * shape["tokens"]
    if result["op"] == "minilm":
        return shape["batch"] * shape["length"] / 1e3
    from peers import table

    return table.amount(result)


def _speed(result: dict) -> float:
    return _digits(amount(result) / result["seconds"])


def _digits(value: float) -> float:
    """Four digits: more than a measurement has."""
    return float(f"{value:.4g}")


def main(name: str, files: list[str]) -> None:
    documents = [json.loads(Path(file).read_text(encoding="utf-8")) for file in files]
    documents = [
        document for document in documents if any(row["op"] != "memory" for row in document["results"])
    ]
    path = FOLDER / f"peers-{name}.json"
    about = documents[0]["machine"]
    old = load(path) if path.exists() else Machine(name, about["cpu"], about["cores"])
    old.cpu, old.cores = about["cpu"], about["cores"]
    refresh(old, documents)
    print(save(old))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
