"""Speed of every contender on every case of one operation, with quartiles and the machine's limit."""

import textwrap

from matplotlib.patches import Patch

from .. import style
from ..data import case_label, operation
from ..summary import counts_text, own_rows
from .base import Figure, count, entry, number, panels, threads_text

CAPTION = (
    "One band per case; it ends, with a stroke, at the machine's limit measured in the same run. Each mark is a "
    "contender's median, its line the quartiles; further right is faster. The number at the right is headlane's speed "
    "over that of the best peer."
)
PREPACKED = (
    " Prepacked contenders have put the right operand in their own order beforehand, which is not timed: they are "
    "left out of that ratio; headlane prepacked does the same work as they."
)


ROUNDED = (
    " int8, int4, bfloat16: weights of fewer bits, less to read, and other results; left out of that ratio."
)


def build(report):
    figures = []
    for op in report.ops():
        threads = report.threads(op)
        rows = report.select(op)
        if not rows:
            continue
        notes = PREPACKED if any(row.prepacked for row in rows) else ""
        notes += ROUNDED if any(row.rounded for row in rows) else ""
        draw = lambda theme, narrow, op=op: Speed(report, op, theme, narrow).canvas  # noqa: E731
        figures.append(
            Figure(
                f"speed-{op}",
                title(report, op, threads),
                CAPTION + notes,
                alt(report, op, threads),
                draw,
                op,
            )
        )
    return figures


def title(report, op, threads):
    found = [(amount, report.comparisons(op, amount)) for amount in threads]
    found = [(amount, comparisons) for amount, comparisons in found if comparisons]
    parts = [
        f"{threads_text(amount)}: {counts_text(here, short=place > 0)}"
        for place, (amount, here) in enumerate(found)
    ]
    name = operation(op).title
    return f"{name}, {'; '.join(parts)}" if parts else f"{name}: {operation(op).unit}"


def alt(report, op, threads):
    what = operation(op)
    parts = []
    for amount in threads:
        own = own_rows(report, op, amount)
        text = f"{threads_text(amount)}, {count(len({row.case for row in report.select(op, amount)}), what.case)}"
        if own:
            text += f": headlane {number(min(r.speed for r in own))} to {number(max(r.speed for r in own))} {what.unit}"
        ratios = [comparison.ratio for comparison in report.comparisons(op, amount)]
        if ratios:
            text += f", {min(ratios):.2f} to {max(ratios):.2f} times the best peer"
        parts.append(text)
    text = ". ".join(parts)
    return f"Speed of {what.title} in {what.unit} per {what.case} and contender. {text}. All values: the table below."


class Speed:
    """The drawing: every case is a band as high as its contenders need."""

    def __init__(self, report, op, theme, narrow):
        self.op, self.theme, self.narrow = op, theme, narrow
        self.colour = style.THEMES[theme]
        rows = report.select(op)
        self.looks = style.looks(row.contender for row in rows)
        self.cases = list(dict.fromkeys(row.case for row in rows))
        threads = report.threads(op)
        lane = (
            7.5 if len(self.looks) < 9 else 6
        )  # pixels from one contender's mark to the next in the same band
        band = max(26, lane * len(self.looks) + 10)
        height = band * len(self.cases)
        self.canvas, all_axes = panels(len(threads), narrow, height, self.handles(rows), sharey=not narrow)
        for axes, amount in zip(all_axes, threads, strict=True):
            self.panel(axes, [row for row in rows if row.threads == amount], report.comparisons(op, amount))
            axes.set_title(threads_text(amount))

    def handles(self, rows):
        packed = {row.contender for row in rows if row.prepacked}
        entries = [entry(look, self.theme, name in packed) for name, look in self.looks.items()]
        band = {"facecolor": self.colour["band"], "edgecolor": self.colour["limit"]}
        return entries + ([Patch(label="machine's limit", **band)] if any(row.limit for row in rows) else [])

    def panel(self, axes, rows, comparisons):
        top = 0
        ratios = {comparison.ours.case: comparison for comparison in comparisons}
        for place, case in enumerate(self.cases):
            here = [row for row in rows if row.case == case]
            top = max([top, *(self.mark(axes, place, row) for row in here)])
            top = max(top, self.limit(axes, place, here))
            if case in ratios:
                self.ratio(axes, place, ratios[case])
        axes.set_xlim(0, top * 1.04 or 1)
        axes.set_ylim(len(self.cases) - 0.45, -0.55)
        axes.set_yticks(range(len(self.cases)), [textwrap.fill(case_label(case), 14) for case in self.cases])
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x")
        axes.locator_params(axis="x", nbins=5)
        axes.set_xlabel(operation(self.op).unit)

    def mark(self, axes, place, row):
        names = list(self.looks)
        y = place + (names.index(row.contender) - (len(names) - 1) / 2) * 0.78 / max(len(names), 3)
        low, high = row.speed_in(row.high), row.speed_in(row.low)
        axes.plot(
            [low, high], [y, y], color=self.colour[self.looks[row.contender].colour], linewidth=1.6, zorder=3
        )
        axes.plot(row.speed, y, linestyle="none", zorder=4, **self.looks[row.contender].marks(self.theme, 6))
        return high

    def limit(self, axes, place, rows):
        """The highest limit measured beside headlane's own rows, or beside any row if there is none."""
        own = [row for row in rows if row.headlane and row.limit] or [row for row in rows if row.limit]
        if not own:
            return 0
        end = max(row.speed_in(row.limit) for row in own)
        axes.barh(place, end, height=0.88, color=self.colour["band"], zorder=0.5)
        axes.plot(
            [end, end], [place - 0.44, place + 0.44], color=self.colour["limit"], linewidth=1.6, zorder=2
        )
        return end

    def ratio(self, axes, place, comparison):
        ahead = comparison.outcome == "ahead"
        look = {
            "fontweight": "bold" if ahead else "normal",
            "color": self.colour["headlane" if ahead else "text"],
        }
        where = axes.get_yaxis_transform()
        axes.text(1.015, place, f"{comparison.ratio:.2f}×", transform=where, va="center", **look)
