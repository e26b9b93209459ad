"""Error against speed: what each contender gives for its speed, or takes."""

from statistics import median

from .. import style
from ..data import geometric_mean, operation
from .base import Figure, entry, logarithmic, number, panels

FLOOR = 0.01  # eps: what is exact, or nearly, is drawn here
CAPTION = (
    "The lower right corner is best: exact and fast. Small marks are single cases, large ones a contender's "
    "geometric mean over the cases that all of them ran. The error is the largest over all outputs of a case, "
    f"against a result in float64, in units of eps = 2⁻²⁴ times {{unit}}."
    f" Errors below {FLOOR} eps are drawn at {FLOOR}."
)


def measured(report, op):
    """The rows with an error in eps, which T5's and that of weights of fewer bits are not."""
    rows = [
        row for row in report.select(op, min(report.threads(op))) if row.error is not None and not row.rounded
    ]
    return [row for row in rows if row.error >= 0 and (row.error_unit or "eps").startswith("eps")]


def eps(row):
    return max(row.error, FLOOR)


def means(rows):
    """{contender: (speed, eps)} over the cases that every contender ran; empty if there is none."""
    names = list(dict.fromkeys(row.contender for row in rows))
    cases = {
        case
        for case in {row.case for row in rows}
        if {r.contender for r in rows if r.case == case} == set(names)
    }
    result = {}
    for name in names if cases else ():
        mine = [row for row in rows if row.contender == name and row.case in cases]
        result[name] = geometric_mean(row.speed for row in mine), geometric_mean(eps(row) for row in mine)
    return result


def build(report):
    ops = [op for op in report.ops() if len({row.contender for row in measured(report, op)}) > 1]
    return [figure(report, op) for op in ops]


def figure(report, op):
    rows = measured(report, op)
    medians = {
        name: median(eps(r) for r in rows if r.contender == name)
        for name in sorted({r.contender for r in rows})
    }
    listed = ", ".join(f"{name} {number(value)}" for name, value in medians.items())
    what = operation(op)
    title = f"{what.title}: largest error in eps, median over the {what.case}s"
    own = medians.get("headlane")
    peers = {name: value for name, value in medians.items() if not name.startswith("headlane")}
    if own is not None and peers:
        least = min(peers, key=peers.get)
        title = f"{what.title}: median error of headlane {number(own)} eps, of the most exact peer "
        title += f"{number(peers[least])} ({least})"
    units = {row.error_unit for row in rows if row.error_unit}
    unit = units.pop().removeprefix("eps·") if len(units) == 1 else "the scale named in the table"
    return Figure(
        f"error-{op}",
        title,
        CAPTION.format(unit=unit),
        f"Scatter of error over speed in {what.unit}. Median error in eps: {listed}.",
        lambda theme, narrow: draw(rows, op, theme, narrow),
        op,
    )


def draw(rows, op, theme, narrow):
    looks = style.looks(row.contender for row in rows)
    canvas, (axes,) = panels(
        1, narrow, 280 if narrow else 340, [entry(look, theme) for look in looks.values()]
    )
    for name, look in reversed(looks.items()):
        mine = [row for row in rows if row.contender == name]
        axes.plot(
            [row.speed for row in mine],
            [eps(row) for row in mine],
            linestyle="none",
            alpha=0.55,
            **look.marks(theme, 4.5),
        )
    for name, (speed, error) in means(rows).items():
        axes.plot(speed, error, linestyle="none", zorder=5, **looks[name].marks(theme, 9 if narrow else 11))
    axes.set_xscale("log")
    axes.set_yscale("log")
    logarithmic(axes.xaxis)
    logarithmic(axes.yaxis)
    axes.grid()
    axes.set_xlabel(operation(op).unit + (", 1 thread" if min(row.threads for row in rows) == 1 else ""))
    axes.set_ylabel("largest error, eps")
    return canvas
