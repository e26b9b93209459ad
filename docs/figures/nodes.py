"""Figures and tables of nodes.md: docs/data/nodes.csv and nodes-check.json, which `python -m nodes` writes."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from math import inf, log2

from nodes import check, simulate

from . import draw
from .draw import figure, term

TITLES = {
    "attention 65536 cyclic": "attention, 65,536 tokens",
    "attention 1048576 cyclic": "attention, 1,048,576 tokens",
    "attention 65536 zigzag": "attention, 65,536 tokens, zigzag",
    "attention 1048576 zigzag": "attention, 1,048,576 tokens, zigzag",
    "decoding 1048576": "decoding, 1,048,576 keys",
    "layer 1x1": "layer, 1 row",
    "layer 1x512": "layer, 512 rows",
    "layer 16x512": "layer, 16 × 512 rows",
    "embedding": "embedding, 1,000,000 sentences",
}
SEQUENCE = (
    ("attention 1048576 cyclic", "c1", None),
    ("attention 1048576 zigzag", "c1", "5 4"),
    ("attention 65536 cyclic", "c2", None),
    ("attention 65536 zigzag", "c2", "5 4"),
    ("decoding 1048576", "c3", None),
)
LAYERS = (
    ("layer 16x512", "c1", None),
    ("layer 1x512", "c2", None),
    ("layer 1x1", "c3", None),
    ("embedding", "c4", None),
)
KINDS = {
    "whole": "not causal, contiguous",
    "zigzag": "causal, zigzag",
    "cyclic": "causal, cyclic",
    "decode": "decoding",
    "encoder": "encoder layer, 16 sequences",
}


@dataclass(frozen=True)
class Row:
    case: str
    alpha_us: float
    gbit: float
    nodes: int
    seconds: float
    efficiency: float


def load() -> list[Row]:
    with simulate.DATA.open(encoding="utf-8") as file:
        return [
            Row(line["case"], *map(float, (line["alpha_us"], line["gbit"])), int(line["nodes"]),
                *map(float, (line["seconds"], line["efficiency"])))
            for line in csv.DictReader(file)
        ]  # fmt: skip


def values() -> dict[str, str]:
    rows = load()
    about, runs = check.load()
    pairs = compared(runs)
    ratios = sorted(run_time / model for _, run_time, model in pairs)
    rates, node, one = check.node_of(runs), simulate.node(), simulate.core()
    return {
        "checked": check_table(pairs),
        "check_runs": str(len(pairs)),
        "check_near": str(sum(abs(ratio - 1) <= 0.1 for ratio in ratios)),
        "check_ratios": f"{ratios[0]:.2f} to {ratios[-1]:.2f}",
        "check_rates": (
            f"{rates.attention / 1e9:.1f} GFLOP/s of attention, {rates.products / 1e9:.1f} of a layer's products, "
            f"{rates.memory / 1e9:.1f} GB/s of decoding, "
            f"{rates.call * 1e6:.0f} µs a call, {rates.fresh / 1e9:.2f} GB/s into memory that a call allocates"
        ),
        "check_about": f"{about['processor']}, {about['date']}, {about['rounds']} rounds",
        "sequence": panels(rows, SEQUENCE, "Attention and decoding cut over nodes. Dashed: the zigzag cut."),
        "layers": panels(rows, LAYERS, "A transformer layer of a team, and embedding as a job of pieces."),
        "limits": limits_table(rows),
        "node_attention": f"{one['attention']:.1f}",
        "node_products": f"{one['products']:.1f}",
        "node_memory": f"{node.memory / 1e9:.0f}",
        "node_region": f"{node.region * 1e6:.1f}",
        "node_sentences": f"{one['sentences']:.0f}",
        "node_call": f"{node.call * 1e6:.0f}",
        "node_fresh": f"{node.fresh / 1e9:.2f}",
    }


def compared(runs: dict[check.Run, float]) -> list[tuple[check.Run, float, float]]:
    """Each run over links that are slowed, with its time and the model's."""
    node = check.node_of(runs)
    return [(run, time, check.predicted(run, node)) for run, time in runs.items() if run.gbit < inf]


def check_table(pairs: list[tuple[check.Run, float, float]]) -> str:
    lines = [
        "    | | clock | length | ranks | α | Gbit/s | measured | model | ratio |",
        "    |---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for run, seconds, model in pairs:
        cells = [
            KINDS[run.case],
            run.clock,
            f"{run.length:,}",
            str(run.ranks),
            time(run.alpha_us * 1e-6),
            f"{run.gbit:g}",
        ]
        lines.append(
            "    | " + " | ".join([*cells, time(seconds), time(model), f"{seconds / model:.2f}"]) + " |"
        )
    return "\n".join(lines)


def limits_table(rows: list[Row]) -> str:
    """The most nodes with an efficiency of half or more, and those that take the shortest time."""
    networks = list(dict.fromkeys((row.alpha_us, row.gbit) for row in rows))
    heads = "".join(f" {name(network)}: half | shortest |" for network in networks)
    lines = [f"| | 1 node |{heads}", "|---|---:|" + "---:|---:|" * len(networks)]
    for case, title in TITLES.items():
        cells = []
        for network in networks:
            found = [row for row in rows if row.case == case and (row.alpha_us, row.gbit) == network]
            half = max((row for row in found if row.efficiency >= 0.5), key=lambda row: row.nodes)
            cells += [with_time(half), with_time(min(found, key=lambda row: row.seconds))]
        lines.append("| " + " | ".join([title, time(found[0].seconds), *cells]) + " |")
    return "\n".join(lines)


def with_time(row: Row) -> str:
    return f"{row.nodes:,}: {time(row.seconds)}"


def name(network: tuple[float, float]) -> str:
    return f"{network[1]:g} Gbit/s, {network[0]:g} µs"


def time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= 0.9995 * size:
            return (
                f"{seconds / size:,.3g} {unit}" if seconds < 999.5 * size else f"{seconds / size:,.0f} {unit}"
            )
    return f"{seconds * 1e6:.3g} µs"


def panels(rows: list[Row], curves: tuple, caption: str) -> str:
    networks = list(dict.fromkeys((row.alpha_us, row.gbit) for row in rows))
    drawn = [term(panel(rows, curves, network)) for network in networks]
    keys = "; ".join(
        f'<span class="key {colour}">{TITLES[case]}</span>' for case, colour, dashes in curves if not dashes
    )
    return figure(draw.panels(*drawn), f"Efficiency over the number of nodes. {caption} {keys}.")


def panel(rows: list[Row], curves: tuple, network: tuple[float, float]) -> str:
    left, top, wide, high = 40.0, 26.0, 260.0, 150.0
    counts = sorted({row.nodes for row in rows})

    def at(row: Row) -> tuple[float, float]:
        return left + 8 + (wide - 16) * log2(row.nodes) / log2(counts[-1]), top + high * (1 - row.efficiency)

    body = [draw.text(0, 14, name(network), class_="name")]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = top + high * (1 - share)
        body.append(draw.line(left, y, left + wide, y, class_="limit" if share == 0.5 else "grid"))
        body.append(draw.text(left - 6, y + 4, f"{share:.0%}", class_="size", text_anchor="end"))
    for count in counts[::2]:
        x = left + 8 + (wide - 16) * log2(count) / log2(counts[-1])
        body.append(draw.text(x, top + high + 16, f"{count:,}", class_="size", text_anchor="middle"))
    spoken = []
    for case, colour, dashes in curves:
        found = [row for row in rows if row.case == case and (row.alpha_us, row.gbit) == network]
        path = "M" + "L".join(f"{draw.number(x)} {draw.number(y)}" for x, y in map(at, found))
        title = draw.tag("title", TITLES[case])
        body.append(draw.tag("path", title, d=path, class_=f"curve {colour}", stroke_dasharray=dashes))
        spoken.append(
            f"{TITLES[case]}: " + ", ".join(f"{row.nodes} nodes {row.efficiency:.0%}" for row in found)
        )
    alt = f"Efficiency over the number of nodes, {name(network)}. " + "; ".join(spoken)
    return draw.svg(left + wide + 8, top + high + 24, body, alt)
