"""Tables and plots of measured speeds, and the short table of README.md."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import log2

from . import draw, measured
from .draw import figure, term
from .measured import Machine, Row

UNITS = {
    "gemm": "GFLOP/s",
    "softmax": "10⁹ elements/s",
    "attention": "GFLOP/s",
    "attention_options": "GFLOP/s",
    "decode": "GB/s of keys and values",
    "norms": "10⁹ elements/s",
    "layers": "GFLOP/s of the products",
    "t5": "tokens/s",
    "minilm": "10³ tokens/s",
}
TITLES = {
    "gemm": "GEMM",
    "softmax": "Softmax",
    "attention": "Attention",
    "attention_options": "Attention with options",
    "decode": "Decoding",
    "norms": "Norms and GELU",
    "layers": "Layers",
    "t5": "T5",
    "minilm": "MiniLM",
}
NOTES = {
    "gemm": "m × n × k, C = A · B. *Packed* weights were brought into the library's own layout before the timing, for all contenders.",
    "softmax": "Rows × columns, along the rows. The mask takes out an eighth of the elements.",
    "attention": (
        "8 heads of 64 unless stated, L queries and L keys. Only visible pairs of query and key count as work: what a library "
        "computes and throws away does not make it faster here."
    ),
    "attention_options": "8 heads of 64 unless stated, each option alone.",
    "decode": "One query row for each sequence and head; reading the keys and values is all the work.",
    "norms": "Rows × columns.",
    "layers": "d_model 512, 8 heads, d_ff 2048, GELU, normalization after the additions. Only the matrix products count as work.",
    "t5": "Greedy generation of 64 tokens from 16, random weights, float32. Everybody must generate the same tokens.",
    "minilm": "all-MiniLM-L6-v2, batch × tokens, states of the last layer.",
}


def label(case: str, prepacked: bool = False) -> str:
    written = re.sub(r"(?<=\d)x(?=\d|L)", "×", case).replace("L=", "L = ").replace("×L = ", " × L = ")
    return written + (", packed" if prepacked else "")


def digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.3g}"


def values(machines: list[Machine]) -> dict[str, str]:
    newest = machines[0]
    pairs = [row for row in newest.rows if row.ratio]
    ahead = sum(row.ratio > 1 for row in pairs)
    return {
        "ahead": str(ahead),
        "pairs": str(len(pairs)),
        "median_ratio": f"{sorted(row.ratio for row in pairs)[len(pairs) // 2]:.2f}",
        "dates": dates(newest),
        "overview": overview(newest),
        "scaling": scaling(newest),
        "machines": "\n\n".join(section(machine, len(machines) > 1) for machine in machines),
    }


def dates(machine: Machine) -> str:
    found = sorted({run.date for run in machine.runs})
    return found[0] if len(found) == 1 else f"{found[0]} to {found[-1]}"


def section(machine: Machine, named: bool) -> str:
    parts = [f"## {machine.cpu}"] if named else []
    parts += ["## The runs", runs_list(machine)]
    for op in UNITS:
        rows = machine.of(op)
        if rows:
            parts += [f"## {TITLES[op]}", NOTES[op] + f" In {UNITS[op]}.", panels(op, rows), table(rows)]
            if any(len(row.speeds) > 2 for row in rows):
                parts.append(all_contenders(rows))
    return "\n\n".join(parts)


def runs_list(machine: Machine) -> str:
    lines = [f"{machine.cpu}, {machine.cores} cores.", ""]
    for run in machine.runs:
        said = [
            run.date,
            f"headlane {run.headlane}" + (f" ({run.commit})" if run.commit else ""),
            run.compiler,
        ]
        if run.os:
            said.append(run.os)
        peaks = [
            f"{value:g} GFLOP/s with {threads_text(int(count))}" for count, value in run.fma_gflops.items()
        ]
        if peaks:
            said.append("FMA peak " + " and ".join(peaks))
        if run.busy > 0.05:
            said.append(f"others used {100 * run.busy:.0f} % of the CPUs")
        if run.source:
            said.append(run.source)
        others = ", ".join(
            f"{name} {version}" if version else name for name, version in run.contenders.items()
        )
        lines.append(f"- **{', '.join(TITLES[op] for op in run.ops)}:** {'; '.join(said)}. Beside {others}.")
    return "\n".join(lines)


def threads_text(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


@dataclass
class Case:
    """The rows of one case, by the number of threads."""

    name: str
    rows: dict[int, Row]


def cases(rows: Iterable[Row]) -> list[Case]:
    grouped: dict[tuple[str, bool], Case] = {}
    for one in rows:
        key = one.case, one.prepacked
        grouped.setdefault(key, Case(label(*key), {})).rows[one.threads] = one
    return list(grouped.values())


def cells(one: Row | None) -> str:
    """headlane with its share of the limit, and the best peer; the faster one is bold."""
    if one is None:
        return " | "
    share = f" ({100 * one.share:.0f} %)" if one.share else ""
    ours, best = digits(one.ours), one.best
    if best is None:
        return f"{ours}{share} | "
    peer = digits(best[1])
    if ours == peer:
        return f"{ours}{share} | {peer} {best[0]}"
    ahead = one.ours > best[1]
    return f"**{ours}**{share} | {peer} {best[0]}" if ahead else f"{ours}{share} | **{peer}** {best[0]}"


def table(rows: list[Row]) -> str:
    counts = sorted({one.threads for one in rows})
    heads = " | ".join(f"{threads_text(count)} | best other" for count in counts)
    lines = [f"| | {heads} |", "|---" + "|---:|---" * len(counts) + "|"]
    for case in cases(rows):
        lines.append(f"| {case.name} | " + " | ".join(cells(case.rows.get(count)) for count in counts) + " |")
    return "\n".join(lines)


def all_contenders(rows: list[Row]) -> str:
    names = list(dict.fromkeys(name for one in rows for name in one.speeds))
    lines = ["| | threads | " + " | ".join(names) + " |", "|---" + "|---:" * (len(names) + 1) + "|"]
    for one in rows:
        speeds = " | ".join(digits(one.speeds[name]) if name in one.speeds else "–" for name in names)
        lines.append(f"| {label(one.case, one.prepacked)} | {one.threads} | {speeds} |")
    return '??? note "Every contender"\n\n' + "\n".join("    " + text for text in lines)


# ---- Plots


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
        "Blue: headlane. Orange: the fastest other library; grey: the others. The band ends at the machine's limit, where one was "
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
    alt = f"{TITLES[op]}, {threads_text(count)}, {UNITS[op]}: " + "; ".join(spoken(one) for one in rows)
    return draw.svg(left + wide + 46, bottom + 20, body, alt)


def spoken(one: Row) -> str:
    best = f", {one.best[0]} {digits(one.best[1])}" if one.best else ""
    return f"{label(one.case, one.prepacked)}: headlane {digits(one.ours)}{best}"


def dot(x: float, y: float, radius: float, class_: str, title: str) -> str:
    return draw.tag("circle", draw.tag("title", title), cx=float(x), cy=float(y), r=radius, class_=class_)


def ticks(most: float) -> list[float]:
    """Up to five round numbers from 0 on."""
    power = 10.0 ** (len(f"{most:.0f}") - 1)
    step = next(part * power for part in (0.1, 0.2, 0.5, 1, 2) if most / (part * power) <= 4.9)
    return [i * step for i in range(int(most / step) + 1)]


def axis(left: float, y: float, most: float, scale: float) -> list[str]:
    body = []
    for value in ticks(most):
        x = left + value * scale
        body.append(draw.line(x, y, x, y + 4, class_="limit"))
        body.append(draw.text(x, y + 16, f"{value:g}", class_="size", text_anchor="middle"))
    return body


def overview(machine: Machine) -> str:
    """A dot for each case, on a logarithmic scale of the ratio."""
    ops = [op for op in UNITS if any(one.ratio for one in machine.of(op))]
    left, wide, high, top = 150.0, 196.0, 30.0, 24.0
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
        body.append(draw.text(left - 10, y + 4, TITLES[op], class_="label", text_anchor="end"))
        for one in machine.of(op):
            if one.ratio:
                title = f"{label(one.case, one.prepacked)}, {threads_text(one.threads)}: {one.ratio:.2f} times {one.best[0]}"
                shift = -5 if one.threads == 1 else 5
                body.append(dot(at(one.ratio), y + shift, 4, "c1" if one.ratio > 1 else "c2", title))
    parts = [f"{TITLES[op]} {ratios(machine.of(op))}" for op in ops]
    alt = "headlane's speed over the fastest other library's, each case a dot: " + "; ".join(parts)
    caption = "Speed over that of the fastest other library, a dot for each case: 1 thread above, 2 below. Right of the line headlane is faster."
    return figure(draw.svg(left + wide + 12, bottom + 8, body, alt), caption)


def ratios(rows: list[Row]) -> str:
    found = [one.ratio for one in rows if one.ratio]
    return f"{min(found):.2f} to {max(found):.2f} times"


def scaling(machine: Machine) -> str:
    """Attention over the sequence length, plain and causal."""
    drawn = [term(curve(machine, count)) for count in (1, 2)]
    caption = "Attention, 8 heads of 64, over the sequence length. Lines: headlane; dashed: the fastest other library at each length."
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
        x = left + 8 + (wide - 70) * (log2(length / lengths[0])) / log2(lengths[-1] / lengths[0])
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


# ---- README.md

README_ROWS = (
    ("GEMM 512 × 512 × 512, GFLOP/s", "gemm", "512x512x512", False),
    ("attention, 8 heads of 64, L = 512, GFLOP/s", "attention", "L=512", False),
    ("causal attention, L = 2048, GFLOP/s", "attention", "L=2048 causal", False),
    ("decoding, 4096 keys, GB/s", "decode", "4096 keys", False),
    ("softmax 4096 × 512, 10⁹ elements/s", "softmax", "4096x512", False),
    ("encoder layer, L = 512, GFLOP/s", "layers", "encoder L=512", False),
    ("T5 (t5-small's shape), tokens/s", "t5", "t5-small, batch 1", False),
    ("all-MiniLM-L6-v2, 128 tokens, 10³ tokens/s", "minilm", "1x128", False),
)
MARKERS = "<!-- speed: made by ./dev docs -->", "<!-- speed: end -->"


def readme_table(machine: Machine) -> str:
    lines = ["| | 1 thread | best other | 2 threads | best other |", "|---|---:|---|---:|---|"]
    for title, op, case, prepacked in README_ROWS:
        found = [machine.find(op, case, count, prepacked) for count in (1, 2)]
        if any(found):
            lines.append(f"| {title} | " + " | ".join(cells(one) for one in found) + " |")
    about = f"{machine.cpu}, {machine.cores} cores, measured {dates(machine)}; in brackets the share of the machine's limit."
    return "\n".join(lines) + "\n\n" + about


def with_table(readme: str, machine: Machine) -> str:
    """README's text with the table between the markers."""
    first, last = MARKERS
    before, _, rest = readme.partition(first)
    _, found, after = rest.partition(last)
    if not found:
        raise ValueError(f"README.md has no {first} … {last}")
    return f"{before}{first}\n{readme_table(machine)}\n{last}{after}"
