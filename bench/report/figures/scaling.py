"""Attention over the sequence length, plain and causal, for headlane and its peers."""

from collections import Counter

from matplotlib.lines import Line2D

from .. import style
from ..data import operation
from .base import Figure, entry, logarithmic, number, panels, threads_text

CAPTION = (
    "Useful work only: keys that a causal mask excludes do not count. Bars at the marks are quartiles, "
    "the dashed line is the machine's limit."
)


def lengths(report):
    """Self-attention of the batch, heads and head_dim measured over the most lengths: these three, and
    {(causal, threads): rows}."""
    rows = [row for row in report.select("attention") if over_length(row.shape)]
    kinds = Counter(kind for kind, _ in {(shape_kind(row.shape), row.shape["q_length"]) for row in rows})
    if not kinds:
        return None, {}
    kind = max(kinds, key=kinds.get)
    groups = {}
    for row in rows:
        if shape_kind(row.shape) == kind:
            groups.setdefault((bool(row.shape.get("causal")), row.threads), []).append(row)
    return kind, {
        key: rows for key, rows in sorted(groups.items()) if len({r.shape["q_length"] for r in rows}) > 1
    }


def over_length(shape):
    return shape.get("q_length") and shape["q_length"] == shape.get("kv_length") and not shape.get("mask")


def shape_kind(shape):
    return tuple(shape.get(key) for key in ("batch", "heads", "head_dim"))


def build(report):
    kind, groups = lengths(report)
    if not groups:
        return []
    batch, heads, head_dim = kind
    return [
        Figure(
            "scaling",
            title(groups),
            f"Batch {batch}, {heads} heads of {head_dim}. {CAPTION}",
            "Lines of speed over sequence length, one per contender. "
            + " ".join(describe(*item) for item in groups.items()),
            lambda theme, narrow: draw(groups, theme, narrow),
            "attention",
        )
    ]


def kind_text(causal, threads):
    return f"{'causal' if causal else 'plain'}, {threads_text(threads)}"


def ours(rows):
    return sorted((row for row in rows if row.contender == "headlane"), key=lambda row: row.shape["q_length"])


def fastest_lengths(rows):
    """The lengths that headlane and a peer ran, and those where headlane's median is the best."""
    shared, won = [], []
    for row in ours(rows):
        peers = [r.seconds for r in rows if not r.headlane and r.shape["q_length"] == row.shape["q_length"]]
        if peers:
            shared.append(row.shape["q_length"])
            if row.seconds < min(peers):
                won.append(row.shape["q_length"])
    return shared, won


def title(groups):
    """All thread counts together, by mask."""
    parts = []
    for causal, name in ((False, "plain"), (True, "causal")):
        found = [fastest_lengths(rows) for (kind, _), rows in groups.items() if kind == causal]
        shared = sum(len(shared) for shared, _ in found)
        if shared:
            parts.append(f"{name} {sum(len(won) for _, won in found)} of {shared}")
    if not parts:
        return "Attention over the sequence length"
    return f"Attention over the length: points where headlane is the fastest, {', '.join(parts)}"


def describe(key, rows):
    mine = ours(rows)
    if not mine:
        return ""
    first, last = mine[0], mine[-1]
    return (
        f"{kind_text(*key).capitalize()}: headlane from {number(first.speed)} GFLOP/s at length "
        f"{first.shape['q_length']} to {number(last.speed)} at {last.shape['q_length']}."
    )


def draw(groups, theme, narrow):
    colour = style.THEMES[theme]
    looks = style.looks(row.contender for rows in groups.values() for row in rows)
    handles = [entry(look, theme, line="-") for look in looks.values()]
    if any(row.limit and row.headlane for rows in groups.values() for row in rows):
        handles.append(Line2D([], [], linestyle="--", color=colour["limit"], label="the machine's limit"))
    canvas, all_axes = panels(len(groups), narrow, 240 if narrow else 260, handles)
    for axes, (key, rows) in zip(all_axes, groups.items(), strict=True):
        for name, look in reversed(looks.items()):
            curve(axes, [row for row in rows if row.contender == name], look, theme)
        edge = {row.shape["q_length"]: row.speed_in(row.limit) for row in rows if row.limit and row.headlane}
        if edge:
            axes.plot(
                sorted(edge), [edge[at] for at in sorted(edge)], "--", color=colour["limit"], linewidth=1.4
            )
        axes.set_title(kind_text(*key).capitalize())
        axes.set_xscale("log", base=2)
        every = sorted({row.shape["q_length"] for row in rows})
        logarithmic(axes.xaxis, every[:: -2 if narrow and len(every) > 5 else 1], "{:g}")
        axes.set_ylim(0)
        axes.grid()
        axes.set_xlabel("sequence length")
        axes.set_ylabel(operation("attention").unit)
    return canvas


def curve(axes, rows, look, theme):
    rows = sorted(rows, key=lambda row: row.shape["q_length"])
    speeds = [row.speed for row in rows]
    spread = [
        [row.speed - row.speed_in(row.high) for row in rows],
        [row.speed_in(row.low) - row.speed for row in rows],
    ]
    top = look.colour == "headlane"
    axes.errorbar([row.shape["q_length"] for row in rows], speeds, yerr=spread, linewidth=2.2 if top else 1.4,
                  elinewidth=1.2, zorder=4 if top else 3, **look.marks(theme, 6))  # fmt: skip
