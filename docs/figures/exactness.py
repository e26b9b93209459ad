"""Tables and plots of what the tests found, and the longer campaigns."""

from __future__ import annotations

import json
import re
from pathlib import Path

from . import draw, tested
from .draw import figure
from .tested import Counted, Tested

CAMPAIGNS = Path(__file__).parents[1] / "data" / "campaigns.json"
NAMES = {
    "gemm": "GEMM",
    "gemm, sweep": "GEMM, sweep over shapes",
    "gemm_batch": "batched GEMM",
    "gemm_gated": "gated GEMM",
    "softmax": "softmax",
    "softmax masked": "softmax, masked",
    "log_softmax": "log-softmax",
    "log_softmax masked": "log-softmax, masked",
    "attention": "attention",
    "attention lse": "log-sum-exp",
    "attention_weights": "attention weights",
    "attention_weights, out": "attention weights, output",
    "attention_weights, sum": "attention weights, sums",
    "merge": "merged parts",
    "merge lse": "merged log-sum-exp",
    "Embedding::logits": "Embedding, logits",
    "layer_norm": "layer norm",
    "rms_norm": "RMS norm",
    "rotary_embedding": "rotary embedding",
    "sinusoidal_encoding": "sinusoidal encoding",
    "encodings": "positional encodings",
    "encodings at large positions": "positional encodings, large positions",
}


def values() -> dict[str, str]:
    found = tested.load()
    counts = found.counts
    return {
        "tested_on": f"{found.cpu}, {found.cores} cores, {found.compiler}, headlane {found.headlane}, on {found.date}",
        "isas": ", ".join(found.isas),
        "tests": f"{found.tests:,}",
        "comparisons": millions(sum(counted.count for counted in found.bounds.values())),
        "closest": f"{max(counted.worst for counted in found.bounds.values()):.2f}",
        "bounds": bounds(found),
        "ulp": ulp(found),
        "bits": f"{counts['bits'].count:,}",
        "bits_differ": f"{counts['bits'].worst:.0f}",
        "exact": f"{counts['exact'].count:,}",
        "exact_differ": f"{counts['exact'].worst:.0f}",
        "combined": f"{counts['combined'].count:,}",
        "guarded": f"{counts['guarded'].count:,}",
        "illegal": f"{counts['illegal'].count:,}",
        "campaigns": campaigns(),
    }


def millions(count: int) -> str:
    return f"{count / 1e6:.0f} million" if count >= 1e7 else f"{count:,}"


def shown(found: dict[str, Counted]) -> list[tuple[str, Counted]]:
    """Ordinary data: among special values and exact examples a ratio says nothing."""
    named = [(NAMES.get(name, name.replace("_", " ")), counted) for name, counted in found.items()]
    return sorted(
        (pair for pair in named if not re.search("special|worked", pair[0]) and pair[1].worst > 0),
        key=lambda pair: -pair[1].worst,
    )


def bounds(found: Tested) -> str:
    caption = (
        "The largest error over the bound that the header states, for each kind of comparison: at 1 a "
        "test fails. At the right: how many "
        "elements were compared with an oracle in double."
    )
    return figure(bars(shown(found.bounds), "Largest error over the stated bound: "), caption)


def bars(rows: list[tuple[str, Counted]], spoken: str) -> str:
    left, wide, high = 164.0, 112.0, 21.0
    body = []
    for i, (name, counted) in enumerate(rows):
        y = 6 + i * high
        body.append(draw.text(left - 8, y + 13, name, class_="small", text_anchor="end"))
        body.append(draw.rect(left, y + 3, wide, 13, class_="band"))
        body.append(draw.rect(left, y + 3, max(1.0, wide * counted.worst), 13, class_="c1", fill_opacity=0.8))
        body.append(draw.text(left + wide + 6, y + 13, f"{counted.worst:.2f}", class_="small"))
        if counted.count:
            body.append(draw.text(left + wide + 38, y + 13, short(counted.count), class_="size"))
    bottom = 6 + len(rows) * high
    body.append(draw.line(left + wide, 4, left + wide, bottom, class_="limit"))
    alt = spoken + "; ".join(f"{name} {counted.worst:.2f}" for name, counted in rows)
    return draw.svg(left + wide + 74, bottom + 4, body, alt)


def short(count: int) -> str:
    return f"{count / 1e6:.1f} M" if count >= 1e6 else f"{count / 1e3:.0f} k" if count >= 1e4 else str(count)


def ulp(found: Tested) -> str:
    lines = ["| function | largest error in ULP | of the stated limit |", "|---|---:|---:|"]
    for name, counted in sorted(found.ulp.items(), key=lambda pair: pair[1].worst):
        share = found.shares.get(name)
        limit = f"{share.worst:.2f}" if share else "–"
        lines.append(f"| {NAMES.get(name, name.replace('_', ' '))} | {counted.worst:.3g} | {limit} |")
    return "\n".join(lines)


def campaigns() -> str:
    lines = ["| check | result | date | again with |", "|---|---|---|---|"]
    for entry in json.loads(CAMPAIGNS.read_text(encoding="utf-8")):
        command = f"`{entry['command']}`" if entry["command"] else "–"
        lines.append(f"| {entry['check']} | {entry['result']} | {entry['date']} | {command} |")
    return "\n".join(lines)
