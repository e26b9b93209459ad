"""Runs of bench_mpi over slowed links, and what the model says of them."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from .model import Attention, Decoding, Heads, Layer, Links, Node

DATA = Path(__file__).parents[2] / "docs" / "data" / "nodes-check.json"
HEADS = Heads(8, 8, 64)  # of bench_mpi.cpp
# Runs without links, from which the rates come.
ALONE = (
    ("whole", 2048, 1),
    ("whole", 1024, 2),
    ("decode", 512, 1),
    ("decode", 65536, 1),
    ("encoder", 64, 1),
)


@dataclass(frozen=True)
class Run:
    case: str
    length: int
    ranks: int
    alpha_us: float
    gbit: float
    clock: str = "virtual"

    @property
    def links(self) -> Links:
        return Links(self.alpha_us * 1e-6, self.gbit * 1e9 / 8)


LINKS = ((10, 25), (100, 10), (1000, 2.5), (10000, 1), (10, 0.1))
WIDE = ((10, 25), (10, 1), (10000, 1))
RUNS = (
    *(Run("whole", 2048, 2, *link) for link in LINKS),
    *(Run("zigzag", 2048, 2, *link) for link in LINKS),
    *(Run("decode", 65536, 2, *link) for link in LINKS),
    *(Run("whole", 8192, 2, *link) for link in ((10, 1), (10, 0.25))),
    *(Run("whole", 8192, ranks, *link) for ranks in (4, 8) for link in WIDE),
    *(Run("zigzag", 8192, ranks, *link) for ranks in (4, 8) for link in WIDE),
    *(Run("cyclic", 8192, ranks, *link) for ranks in (4, 8) for link in WIDE),
    *(Run("decode", 65536, ranks, *link) for ranks in (4, 16) for link in WIDE),
    *(Run("encoder", 64, ranks, *link) for ranks in (2, 4, 8) for link in WIDE),
    *(Run("encoder", 4, ranks, *link) for ranks in (2, 4) for link in WIDE),
    # Mostly waiting, which other programs do not disturb.
    Run("whole", 2048, 2, 10, 0.1, "wall"),
    Run("zigzag", 2048, 2, 100000, 1, "wall"),
    Run("decode", 65536, 2, 100000, 1, "wall"),
    Run("decode", 4096, 8, 10000, 1, "wall"),
    Run("encoder", 64, 2, 10, 0.1, "wall"),
)


def measure(programs: Path, run: Run, seconds: float) -> float:
    """The shortest of the calls."""
    links = programs.resolve() / "libheadlane_slow_links.so"
    if not links.exists():  # the loader would go on without it
        raise FileNotFoundError(f"{links}: build headlane_slow_links")
    settings = [
        "OMP_NUM_THREADS=1",
        f"HEADLANE_CLOCK={run.clock}",
        f"HEADLANE_ALPHA_US={run.alpha_us}",
        f"HEADLANE_GBIT={run.gbit}",
        f"LD_PRELOAD={links}",
    ]
    program = [str(programs / "headlane_bench_mpi"), run.case, str(run.length), str(seconds)]
    mpirun = ["mpirun", "-n", str(run.ranks), "--oversubscribe", "--bind-to", "none", "env"]
    done = subprocess.run([*mpirun, *settings, *program], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["least"]


def attention_of(run: Run) -> Attention:
    cut = {"whole": "contiguous", "zigzag": "zigzag", "cyclic": "cyclic"}[run.case]
    return Attention(HEADS, run.length, run.case != "whole", cut)


def layer_of(run: Run) -> Layer:
    return Layer(width=512, hidden=2048, batch=16, length=run.length)


def node_of(least: dict[Run, float]) -> Node:
    """The rates, from the runs without links."""
    attention, divided, short, long, encoder = (Run(*run, 0, math.inf) for run in ALONE)
    memory = (long.length - short.length) * HEADS.bytes_of_key / (least[long] - least[short])
    operations = 4 * attention.length**2 * HEADS.q * HEADS.dim
    rate = Node(attention=operations / least[attention], products=math.inf, memory=memory)
    whole = attention_of(divided)
    beside = least[divided] - whole.time(2, rate, divided.links)
    layer = layer_of(encoder)
    return replace(
        rate,
        products=layer.operations / (least[encoder] - layer.attending(rate) - layer.replicated(rate)),
        fresh=whole.allocating(2, replace(rate, fresh=1.0)) / beside,
        call=least[short],
    )


def predicted(run: Run, node: Node) -> float:
    if run.case == "decode":
        return Decoding(HEADS, run.length).time(run.ranks, node, run.links)
    if run.case == "encoder":
        return layer_of(run).time(run.ranks, node, run.links)
    return attention_of(run).time(run.ranks, node, run.links)


def load(file: Path = DATA) -> tuple[dict[str, object], dict[Run, float]]:
    """The description, and the shortest time of each run."""
    about = json.loads(file.read_text(encoding="utf-8"))
    runs = {}
    for row in about.pop("runs"):
        seconds = row.pop("seconds")
        runs[Run(**row | {"gbit": row["gbit"] or math.inf})] = seconds
    return about, runs


def write(file: Path, about: dict[str, object], least: dict[Run, float]) -> None:
    """A run in each line. Links without limit are null, which JSON has."""
    rows = [
        {**asdict(run), "gbit": run.gbit if run.gbit < math.inf else None, "seconds": seconds}
        for run, seconds in least.items()
    ]
    lines = ",\n".join("    " + json.dumps(row) for row in rows)
    head = json.dumps(about, indent=2, ensure_ascii=False)[:-2]
    file.write_text(f'{head},\n  "runs": [\n{lines}\n  ]\n}}\n', encoding="utf-8")


def main(
    programs: Path, rounds: int, seconds: float, about: dict[str, object], *, more: bool, file: Path = DATA
) -> None:
    """Rounds over all runs, of which the shortest time counts: other programs disturb, if only caches.

    more: in addition to those in the file.
    """
    before, least = load(file) if more else ({"rounds": 0}, {})
    for number in range(1, rounds + 1):
        for run in (*(Run(*alone, 0, math.inf) for alone in ALONE), *RUNS):
            least[run] = min(measure(programs, run, seconds), least.get(run, math.inf))
        write(file, about | {"rounds": before["rounds"] + number}, least)
        print(f"round {number} of {rounds}", file=sys.stderr, flush=True)
