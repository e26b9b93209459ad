"""The instruction sets side by side: headlane with each of them on one thread."""

from matplotlib.patches import Patch

from .. import style
from ..data import case_label, geometric_mean, operation
from .base import Figure, isa_text, number, panels, percent


def shared(report, op):
    """{case: {isa: row}} where at least two instruction sets ran, on one thread."""
    names = {row.contender for row in report.rows if row.headlane and row.op == op}
    mine = "headlane" if "headlane" in names else min(names, default=None)
    cases = {}
    for row in report.rows:
        if row.op == op and row.contender == mine and row.threads == 1 and row.share:
            cases.setdefault(row.case, {})[row.isa] = row
    return {case: rows for case, rows in cases.items() if len(rows) > 1}


def build(report):
    figures = []
    for op in report.ops():
        cases = shared(report, op)
        if cases:
            draw = lambda theme, narrow, op=op, cases=cases: canvas(report, op, cases, theme, narrow)  # noqa: E731
            figures.append(
                Figure(f"isas-{op}", title(report, op, cases), caption(op), alt(report, op, cases), draw, op)
            )
    return figures


def caption(op):
    return (
        "headlane alone, the same source compiled for each instruction set, one thread. The length of a bar is the "
        "share of the limit for that instruction set – its own peak of fused multiply-add or, where memory bounds, "
        f"the bandwidth – and the number at its end the speed in {operation(op).unit}."
    )


def means(report, cases):
    present = [isa for isa in report.isas() if any(isa in rows for rows in cases.values())]
    return {isa: geometric_mean(rows[isa].share for rows in cases.values() if isa in rows) for isa in present}


def title(report, op, cases):
    found = means(report, cases)
    isas = list(found)
    gains = [
        rows[isas[-1]].seconds / rows[isas[0]].seconds
        for rows in cases.values()
        if isas[0] in rows and isas[-1] in rows
    ]
    gain = (
        f"{isa_text(isas[0])} is {geometric_mean(gains):.1f} times as fast as {isa_text(isas[-1])}"
        if gains
        else "by instruction set"
    )
    return f"{operation(op).title}, 1 thread: {gain}, at {percent(found[isas[0]])} of its limit (geometric means)"


def alt(report, op, cases):
    text = ", ".join(f"{isa_text(isa)} {percent(share)}" for isa, share in means(report, cases).items())
    mean = f"Geometric mean of the share of the limit: {text}."
    return f"Bars per case and instruction set. {mean} All values are in the table."


def canvas(report, op, cases, theme, narrow):
    colour = style.THEMES[theme]
    isas = list(means(report, cases))
    columns = 1 if narrow or len(cases) < 6 else 2
    per = -(-len(cases) // columns)
    handles = [Patch(label=isa_text(isa), **face(isas.index(isa), colour)) for isa in isas]
    result, all_axes = panels(columns, narrow, per * (15 * len(isas) + 12), handles)
    names = list(cases)
    for column, axes in enumerate(all_axes):
        here = names[column * per : (column + 1) * per]
        for place, case in enumerate(here):
            for isa, row in cases[case].items():
                bar(
                    axes,
                    place + (isas.index(isa) - (len(isas) - 1) / 2) * 0.85 / len(isas),
                    row,
                    isas,
                    colour,
                )
        axes.axvline(1, color=colour["limit"], linewidth=1.4)
        axes.set_xlim(0, 1.32 if narrow else 1.22)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
        axes.set_ylim(per - 0.45, -0.55)
        axes.set_yticks(range(len(here)), [case_label(case) for case in here])
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x")
        axes.set_xlabel("share of the instruction set's own limit")
    return result


def face(place, colour):
    return {
        "facecolor": (colour["headlane"], style.ISA_TINTS[place]),
        "edgecolor": colour["headlane"],
        "linewidth": 1.2,
    }


def bar(axes, y, row, isas, colour):
    axes.barh(
        y, min(row.share, 1.1), height=0.74 * 0.85 / len(isas), zorder=2, **face(isas.index(row.isa), colour)
    )
    axes.text(
        max(min(row.share, 1.1), 0) + 0.015,
        y,
        number(row.speed),
        va="center",
        fontsize=style.FONT[True] - 1,
        zorder=3,
    )
