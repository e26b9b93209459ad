"""Every case as one dot: how many times as fast as the best peer on it."""

from matplotlib.lines import Line2D

from .. import style
from ..data import geometric_mean, operation
from ..summary import counts_text
from .base import Figure, logarithmic, panels, threads_text

TICKS = {
    False: (0.1, 0.2, 0.3, 0.5, 0.75, 0.85, 1, 1.2, 1.5, 2, 3, 5, 10, 20, 50),
    True: (0.1, 0.2, 0.5, 1, 1.5, 2, 3, 5, 10, 20, 50),
}
CAPTION = (
    "Each dot is one case; its place says how many times as fast headlane was as the fastest peer on that case, on a "
    "logarithmic axis. Right of 1 headlane is faster. Hollow: the quartiles overlap, this run cannot tell who is "
    "faster. The bar is the geometric mean."
)
STEP = 6  # pixels between dots that would lie on each other


def build(report):
    groups = [
        (op, threads, comparisons)
        for op in report.ops()
        for threads in report.threads(op)
        if (comparisons := report.comparisons(op, threads))
    ]
    if not groups:
        return []
    everything = [comparison for _, _, comparisons in groups for comparison in comparisons]
    worst = min(everything, key=lambda comparison: comparison.ratio)
    best = max(everything, key=lambda comparison: comparison.ratio)
    where = " ".join(
        f"{operation(op).title}, {threads_text(threads)}: from {min(c.ratio for c in group):.2f} to"
        f" {max(c.ratio for c in group):.2f}, geometric mean {geometric_mean(c.ratio for c in group):.2f}."
        for op, threads, group in groups
    )
    return [
        Figure(
            "overview",
            f"All cases: {counts_text(everything)}",
            CAPTION,
            f"Dots on a logarithmic axis of the ratio to the best peer. {where} Worst {worst.ratio:.2f}, "
            f"{describe(worst)}; best {best.ratio:.2f}, {describe(best)}.",
            lambda theme, narrow: draw(groups, theme, narrow),
        )
    ]


def describe(comparison):
    row = comparison.ours
    return f"{operation(row.op).title} {row.label}, {threads_text(row.threads)}"


def spread(ratios, step):
    """Offsets that keep dots of almost the same ratio apart: the nearest free place above or below."""
    placed = []
    for ratio in ratios:
        offset, turn = 0, 1
        while any(abs(offset - other) < 0.9 and abs(ratio / there - 1) < step for there, other in placed):
            offset = (turn + 1) // 2 * (1 if turn % 2 else -1)
            turn += 1
        placed.append((ratio, offset))
    return [offset for _, offset in placed]


def draw(groups, theme, narrow):
    colour = style.THEMES[theme]
    offsets = [
        spread([comparison.ratio for comparison in group], 0.06 if narrow else 0.02) for _, _, group in groups
    ]
    band = max(44, *(STEP * (2 * max(map(abs, here)) + 2) for here in offsets))
    outcomes = {comparison.outcome for _, _, group in groups for comparison in group}
    canvas, (axes,) = panels(1, narrow, len(groups) * band, handles(outcomes, colour))
    for row, (_, _, group) in enumerate(groups):
        ratios = [comparison.ratio for comparison in group]
        for comparison, offset in zip(group, offsets[row], strict=True):
            y = row + offset * STEP / band
            axes.plot(comparison.ratio, y, zorder=5, **dot(comparison.outcome, colour))
        mean = geometric_mean(ratios)
        axes.vlines(mean, row - 0.38, row + 0.38, color=colour["text"], linewidth=2.4, zorder=4)
        where = axes.get_yaxis_transform()
        axes.text(1.01, row, f"{mean:.2f}×", transform=where, va="center", fontweight="bold")
    frame(axes, groups, colour, narrow)
    return canvas


def frame(axes, groups, colour, narrow):
    axes.axvline(1, color=colour["limit"], linewidth=1.2)
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    low, high = min(low, 0.85), max(high, 1.2)
    axes.set_xlim(low, high)
    ticks = [tick for tick in TICKS[narrow] if low <= tick <= high]
    logarithmic(axes.xaxis, ticks, "{:g}×")
    axes.set_yticks(range(len(groups)), [label(op, threads, narrow) for op, threads, _ in groups])
    axes.set_ylim(len(groups) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    axes.set_xlabel(
        "speed against the best peer"
        if narrow
        else "speed of headlane against the best peer on the same case (1× = the same speed)"
    )


def label(op, threads, narrow):
    return f"{operation(op).title}{chr(10) if narrow else ', '}{threads_text(threads)}"


def dot(outcome, colour):
    face = {"ahead": "headlane", "level": "ground", "behind": "text"}[outcome]
    return {
        "linestyle": "none",
        "marker": "X" if outcome == "behind" else "o",
        "color": colour["text" if outcome == "behind" else "headlane"],
        "markerfacecolor": colour[face],
        "markeredgewidth": 1.4 if outcome == "level" else 0.4,
        "markersize": 8 if outcome == "behind" else 6.5,
    }


def handles(outcomes, colour):
    names = {"ahead": "ahead of the best peer", "level": "level: quartiles overlap", "behind": "behind"}
    return [
        *(
            Line2D([], [], label=names[outcome], **dot(outcome, colour))
            for outcome in names
            if outcome in outcomes
        ),
        Line2D(
            [],
            [],
            linestyle="none",
            marker="|",
            markersize=13,
            markeredgewidth=2.4,
            color=colour["text"],
            label="geometric mean",
        ),
    ]
