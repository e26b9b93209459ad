"""The model's times of up to 1,024 nodes: docs/data/nodes.csv."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path

from . import check
from .model import Attention, Decoding, Heads, Layer, Links, Node, Pieces, efficiency

DOCS = Path(__file__).parents[2] / "docs" / "data"
DATA = DOCS / "nodes.csv"
CORES, NODE_GBYTES = 64, 400.0
NETWORKS = ((20.0, 25.0), (2.0, 200.0))  # microseconds, Gbit/s
COUNTS = tuple(2**n for n in range(11))
HEADS = Heads(q=32, kv=8, dim=128)
SENTENCES, OF_PIECE = 1_000_000, 256

Time = Callable[[int, Node, Links], float]


def core() -> dict[str, float]:
    """One core as measured, GFLOP/s of products and attention, and sentences per second."""
    rows = json.loads((DOCS / "peers-zen4.json").read_text(encoding="utf-8"))["rows"]
    found = {
        (row["op"], row["case"]): row["speeds"]["headlane"]
        for row in rows
        if row["threads"] == 1 and not row.get("prepacked") and "headlane" in row["speeds"]
    }
    return {
        "products": found["gemm", "2048x2048x2048"],
        "attention": found["attention", "L=4096"],
        "sentences": found["sentences", "1000 sentences"],
    }


def region_microseconds() -> float:
    """Of two threads, as scaling.md has it."""
    with (DOCS / "scaling.csv").open(encoding="utf-8") as file:
        return float(next(csv.DictReader(file))["region_microseconds"])


def node() -> Node:
    """One of 64 cores. What a single thread does takes as long as in the check."""
    _, runs = check.load()
    alone, one = check.node_of(runs), core()
    return Node(
        attention=CORES * one["attention"] * 1e9,
        products=CORES * one["products"] * 1e9,
        memory=NODE_GBYTES * 1e9,
        region=region_microseconds() * 1e-6 * math.log2(CORES),
        call=alone.call,
        fresh=alone.fresh,
    )


def links_of(alpha_us: float, gbit: float) -> Links:
    return Links(alpha_us * 1e-6, gbit * 1e9 / 8)


def cases() -> dict[str, Time]:
    embedding = Pieces(SENTENCES, OF_PIECE, CORES * core()["sentences"])
    found: dict[str, Time] = {}
    for length in (1 << 16, 1 << 20):
        for cut in ("cyclic", "zigzag"):
            found[f"attention {length} {cut}"] = Attention(HEADS, length, True, cut).time
    found["decoding 1048576"] = Decoding(HEADS, 1 << 20).time
    for batch, length in ((1, 1), (1, 512), (16, 512)):
        found[f"layer {batch}x{length}"] = Layer(4096, 16384, batch, length).time
    found["embedding"] = lambda ranks, _, links: embedding.time(ranks, links)
    return found


def rows() -> Iterator[tuple[str, float, float, int, float, float]]:
    one = node()
    for name, time in cases().items():
        for alpha, gbit in NETWORKS:
            links = links_of(alpha, gbit)
            times = {ranks: time(ranks, one, links) for ranks in COUNTS}
            shares = efficiency(times)
            for ranks in COUNTS:
                yield name, alpha, gbit, ranks, times[ranks], shares[ranks]


def main() -> None:
    with DATA.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("case", "alpha_us", "gbit", "nodes", "seconds", "efficiency"))
        for name, alpha, gbit, ranks, seconds, share in rows():
            writer.writerow((name, f"{alpha:g}", f"{gbit:g}", ranks, f"{seconds:.5g}", f"{share:.4f}"))
