"""Plots of measured speeds, and how cases are written."""

from __future__ import annotations

import re
from math import log2

from report.data import OPERATIONS, case_label

from . import draw, measured
from .draw import figure, term
from .measured import Machine, Row


def label(case: str, prepacked: bool = False) -> str:
    written = case_label(case).replace("L=", "L = ").replace("×L = ", " × L = ")
    return written + (", packed" if prepacked else "")


def digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.3g}"


def threads_text(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def panels(op: str, rows: list[Row]) -> str:
    most = max(max(one.limit or 0, *one.speeds.values()) for one in rows)
    drawn = [
        term(
            panel(
                op, [one for one in rows if one.threads == count], count, most / max_share(rows, count, most)
            )
        )
        for count in sorted({one.threads for one in rows})
    ]
    caption = (
        "Blue: headlane. Orange: the fastest other library; grey: the others. The band ends at the "
        "machine's limit, where one was "
        "measured. At the right: headlane's speed over the fastest other's."
    )
    return figure(draw.panels(*drawn), caption)


def max_share(rows: list[Row], count: int, most: float) -> float:
    """Each panel has a scale of its own."""
    here = [one for one in rows if one.threads == count]
    return most / max(max(one.limit or 0, *one.speeds.values()) for one in here)


def panel(op: str, rows: list[Row], count: int, most: float) -> str:
    left, wide, high, top = 8.0 + max(6.6 * len(label(r.case, r.prepacked)) for r in rows), 165.0, 24.0, 26.0
    scale = wide / most
    body = [draw.text(0, 14, f"{threads_text(count)}", class_="name")]
    for i, one in enumerate(rows):
        y = top + i * high + high / 2
        name = label(one.case, one.prepacked)
        body.append(draw.text(left - 8, y + 4, name, class_="small", text_anchor="end"))
        if one.limit:
            body.append(draw.rect(left, y - 8, one.limit * scale, 16, class_="band"))
            body.append(
                draw.line(left + one.limit * scale, y - 8, left + one.limit * scale, y + 8, class_="limit")
            )
        best = one.best[0] if one.best else ""
        for peer, speed in one.speeds.items():
            if peer not in (measured.OURS, best):
                body.append(dot(left + speed * scale, y, 2.5, "other", f"{peer}: {digits(speed)}"))
        if one.best:
            body.append(dot(left + one.best[1] * scale, y, 4, "c2", f"{best}: {digits(one.best[1])}"))
        body.append(dot(left + one.ours * scale, y, 4.5, "c1", f"headlane: {digits(one.ours)}"))
        if one.ratio:
            style = "small ahead" if one.ratio > 1 else "small"
            body.append(draw.text(left + wide + 8, y + 4, f"{one.ratio:.2f}×", class_=style))
    bottom = top + len(rows) * high
    body += axis(left, bottom, most, scale)
    alt = f"{OPERATIONS[op].title}, {threads_text(count)}, {OPERATIONS[op].unit}: " + "; ".join(
        spoken(one) for one in rows
    )
    return draw.svg(left + wide + 46, bottom + 20, body, alt)


def spoken(one: Row) -> str:
    best = f", {one.best[0]} {digits(one.best[1])}" if one.best else ""
    return f"{label(one.case, one.prepacked)}: headlane {digits(one.ours)}{best}"


def dot(x: float, y: float, radius: float, class_: str, title: str) -> str:
    return draw.tag("circle", draw.tag("title", title), cx=float(x), cy=float(y), r=radius, class_=class_)


def ticks(most: float) -> list[float]:
    """Up to five round numbers from 0 on."""
    power = 10.0 ** (len(f"{most:.0f}") - 1)
    step = next(part * power for part in (0.1, 0.2, 0.5, 1, 2, 5) if most / (part * power) <= 4.9)
    return [i * step for i in range(int(most / step) + 1)]


def axis(left: float, y: float, most: float, scale: float) -> list[str]:
    body = []
    for value in ticks(most):
        x = left + value * scale
        body.append(draw.line(x, y, x, y + 4, class_="limit"))
        body.append(draw.text(x, y + 16, f"{value:g}", class_="size", text_anchor="middle"))
    return body


def overview(machine: Machine, wide: float = 196.0) -> str:
    """A dot for each case, on a logarithmic scale of the ratio."""
    ops = [op for op in OPERATIONS if any(one.ratio for one in machine.of(op))]
    left, high, top = 150.0, 30.0, 24.0
    low, most = -1.0, max(1.6, *(log2(one.ratio) for one in machine.rows if one.ratio)) + 0.1
    low = min(low, *(log2(one.ratio) for one in machine.rows if one.ratio))

    def at(ratio: float) -> float:
        return left + wide * (log2(ratio) - low) / (most - low)

    bottom = top + high * len(ops)
    body = []
    for ratio in (0.5, 1, 2, 4):
        if low <= log2(ratio) <= most:
            body.append(
                draw.line(at(ratio), top, at(ratio), bottom, class_="split" if ratio == 1 else "limit")
            )
            body.append(draw.text(at(ratio), 14, f"{ratio:g}×", class_="size", text_anchor="middle"))
    for i, op in enumerate(ops):
        y = top + (i + 0.5) * high
        body.append(draw.text(left - 10, y + 4, OPERATIONS[op].title, class_="label", text_anchor="end"))
        for one in machine.of(op):
            if one.ratio:
                title = (
                    f"{label(one.case, one.prepacked)}, {threads_text(one.threads)}: {one.ratio:.2f} "
                    f"times {one.best[0]}"
                )
                shift = -5 if one.threads == 1 else 5
                body.append(dot(at(one.ratio), y + shift, 4, "c1" if one.ratio > 1 else "c2", title))
    parts = [f"{OPERATIONS[op].title} {ratios(machine.of(op))}" for op in ops]
    alt = "headlane's speed over the fastest other library's, each case a dot: " + "; ".join(parts)
    caption = (
        "Speed over that of the fastest other library, a dot for each case: 1 thread above, 2 below. "
        "Right of the line headlane is faster."
    )
    return figure(draw.svg(left + wide + 12, bottom + 8, body, alt), caption)


def ratios(rows: list[Row]) -> str:
    found = [one.ratio for one in rows if one.ratio]
    return f"{min(found):.2f} to {max(found):.2f} times"


def scaling(machine: Machine) -> str:
    """Attention over the sequence length, plain and causal."""
    drawn = [term(curve(machine, count)) for count in (1, 2)]
    caption = (
        "Attention, 8 heads of 64, over the sequence length. Lines: headlane; dashed: the fastest other "
        "library at each length."
    )
    return figure(draw.panels(*drawn), caption)


def short(length: int) -> str:
    return f"{length // 1024}k" if length >= 1024 and length % 1024 == 0 else str(length)


def curve(machine: Machine, threads: int) -> str:
    kinds = (("plain", r"L=(\d+)$", "c1"), ("causal", r"L=(\d+) causal$", "c3"))
    series = {}
    for name, pattern, colour in kinds:
        found = [
            (int(m[1]), one)
            for one in machine.of("attention")
            if one.threads == threads and (m := re.match(pattern, one.case))
        ]
        series[name] = (sorted(found, key=lambda pair: pair[0]), colour)
    every = [one for found, _ in series.values() for _, one in found]
    lengths = sorted({length for found, _ in series.values() for length, _ in found})
    most = max(max(one.limit or 0, *one.speeds.values()) for one in every)
    left, top, wide, high = 40.0, 26.0, 250.0, 150.0

    def at(length: int, speed: float) -> tuple[float, float]:
        x = left + 8 + (wide - 70) * log2(length / lengths[0]) / (log2(lengths[-1] / lengths[0]) or 1)
        return x, top + high * (1 - speed / most)

    body = [draw.text(0, 14, f"{threads_text(threads)}, GFLOP/s", class_="name")]
    for value in ticks(most):
        y = top + high * (1 - value / most)
        body.append(draw.line(left, y, left + wide - 50, y, class_="grid"))
        body.append(draw.text(left - 6, y + 4, f"{value:g}", class_="size", text_anchor="end"))
    for length in lengths:
        body.append(
            draw.text(at(length, 0)[0], top + high + 16, short(length), class_="size", text_anchor="middle")
        )
    for name, (found, colour) in series.items():
        ours = [at(length, one.ours) for length, one in found]
        best = [at(length, one.best[1]) for length, one in found if one.best]
        for points, dashes in ((best, "5 4"), (ours, None)):
            path = "M" + "L".join(f"{draw.number(x)} {draw.number(y)}" for x, y in points)
            body.append(draw.tag("path", d=path, class_=f"curve {colour}", stroke_dasharray=dashes))
        for length, one in found:
            body.append(
                dot(*at(length, one.ours), 3.5, colour, f"headlane, L = {length}: {digits(one.ours)}")
            )
        body.append(draw.text(ours[-1][0] + 8, ours[-1][1] + 4, name, class_=f"small name {colour}"))
    alt = f"Attention over the length, {threads_text(threads)}, GFLOP/s: " + "; ".join(
        spoken(one) for one in every
    )
    return draw.svg(left + wide, top + high + 24, body, alt)
