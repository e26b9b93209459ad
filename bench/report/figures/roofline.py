"""The roofline: what headlane reaches on every case with every instruction set, under measured peaks and bandwidths."""

import math

from matplotlib.lines import Line2D

from .. import style
from ..data import OPERATIONS, operation
from .base import Figure, count, isa_text, logarithmic, number, panels, percent, threads_text

OP_MARKERS = dict(zip(OPERATIONS, "os^vDPXhp<>*dH", strict=True))
CAPTION = (
    "Each mark is one case. Rightwards: more arithmetic per byte that has to be moved; upwards: faster. The "
    "flat roofs are the peaks of fused multiply-add measured for each instruction set, the slopes the bandwidths of "
    "reading buffers of these sizes, except those close to another. The roof of a case is its instruction set's peak "
    "or, further left, the slope of the memory that its operands lie in."
)


def points(report, threads):
    names = {row.contender for row in report.rows if row.headlane}
    mine = "headlane" if "headlane" in names else min(names, default=None)
    return [
        r for r in report.rows if r.contender == mine and r.threads == threads and r.gflops and r.intensity
    ]


def build(report):
    limits = report.limits()
    threads = [
        amount
        for amount in report.threads()
        if points(report, amount) and any(at == amount for _, at in limits)
    ]
    if not threads:
        return []
    alt = " ".join(
        f"{threads_text(amount)}: {count(len(points(report, amount)), 'mark')}, peaks "
        + ", ".join(
            f"{isa_text(isa)} {number(e['fma_gflops'])}" for (isa, at), e in limits.items() if at == amount
        )
        + " GFLOP/s."
        for amount in threads
    )
    draw = lambda theme, narrow: canvas(report, threads, limits, theme, narrow)  # noqa: E731
    return [
        Figure(
            "roofline",
            title(report, threads[0]),
            CAPTION,
            f"Log-log plot of GFLOP/s over operations per byte. {alt}",
            draw,
        )
    ]


def title(report, threads):
    """The best that each operation bound by arithmetic reaches with the widest instruction set."""
    widest = next(iter(report.isas()), None)
    rows = [row for row in points(report, threads) if row.limit_kind == "fma" and row.isa == widest]
    best = {
        op: max(row.share for row in rows if row.op == op)
        for op in report.ops()
        if any(row.op == op for row in rows)
    }
    if not best:
        return "Roofline"
    found = ", ".join(f"{operation(op).title} up to {percent(share)}" for op, share in best.items())
    return f"Roofline: {found} of the {isa_text(widest)} peak, {threads_text(threads)}"


def canvas(report, threads, limits, theme, narrow):
    colour = style.THEMES[theme]
    isas = report.isas() or [isa for isa, _ in limits]
    ops = [
        op for op in report.ops() if any(row.op == op for amount in threads for row in points(report, amount))
    ]
    result, all_axes = panels(len(threads), narrow, 360 if narrow else 420, handles(ops, isas, theme))
    for axes, amount in zip(all_axes, threads, strict=True):
        rows = points(report, amount)
        low, high = span(rows, [entry for (_, at), entry in limits.items() if at == amount])
        axes.set(xscale="log", yscale="log", xlim=(low, high))
        roofs(axes, {isa: e for (isa, at), e in limits.items() if at == amount}, colour, low, high)
        for row in rows:
            axes.plot(row.intensity, row.gflops, zorder=4, **marks(row, isas, theme))
        peak = max(entry["fma_gflops"] for (_, at), entry in limits.items() if at == amount)
        axes.set_ylim(min([peak / 20, *(row.gflops / 1.8 for row in rows)]), peak * 1.9)
        logarithmic(axes.xaxis)
        logarithmic(axes.yaxis)
        axes.grid(alpha=0.6)
        axes.set_title(threads_text(amount))
        axes.set_xlabel("floating-point operations per byte")
        axes.set_ylabel("GFLOP/s")
    return result


def span(rows, limits):
    """From where the steepest slope still has room for its label, to beyond the last mark and the last slope's end."""
    entry = max(limits, key=lambda entry: entry["fma_gflops"])
    ridges = [entry["fma_gflops"] / rate for rate in entry["read_gbps"].values()]
    intensities = [row.intensity for row in rows]
    return (
        min([min(intensities) / 2, *(ridge / 14 for ridge in ridges)]),
        max([max(intensities) * 2.2, *(ridge * 2 for ridge in ridges)]),
    )


def roofs(axes, limits, colour, low, high):
    """A bandwidth's slope ends where it meets the highest peak; labels stand at the upper ends."""
    peak = max(entry["fma_gflops"] for entry in limits.values())
    for isa, entry in limits.items():
        axes.plot([low, high], [entry["fma_gflops"]] * 2, color=colour["limit"], linewidth=1.3, zorder=2)
        axes.text(
            high,
            entry["fma_gflops"] * 1.05,
            f"{isa_text(isa)} {number(entry['fma_gflops'])} ",
            ha="right",
            color=colour["muted"],
        )
    widest = max(limits.values(), key=lambda entry: entry["fma_gflops"])
    for size, rate in apart(widest["read_gbps"]).items():
        end = peak / rate
        line = {"color": colour["limit"], "linewidth": 1.3, "linestyle": (0, (4, 2)), "zorder": 2}
        axes.plot([low, end], [low * rate, end * rate], **line)
        x, y = end * 0.64, end * rate * 0.86
        slope = math.degrees(math.atan(y / x))  # in the data; on the axes it is that of the line
        text = f"{size_text(size)} {number(rate)} GB/s"
        turned = {"rotation": slope, "rotation_mode": "anchor", "transform_rotates_text": True}
        axes.text(x, y, text, color=colour["muted"], ha="right", zorder=3, **turned)


def apart(rates):
    """The fastest, the slowest, and those in between that leave room for labels: twice as far from any other."""
    chosen = {}
    by_rate = sorted(rates.items(), key=lambda item: item[1])
    for size, rate in [*by_rate[:1], *by_rate[:0:-1]]:
        if all(max(rate / other, other / rate) >= 2 for other in chosen.values()):
            chosen[size] = rate
    return chosen


def size_text(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def marks(row, isas, theme):
    return {
        "marker": OP_MARKERS.get(row.op, "p"),
        "linestyle": "none",
        "markersize": 6.5,
        **fill(row.isa, isas, theme),
    }


def fill(isa, isas, theme):
    colour = style.THEMES[theme]["headlane"]
    tint = style.ISA_TINTS[isas.index(isa) if isa in isas else 0]
    return {"markerfacecolor": (colour, tint), "markeredgecolor": colour}


def handles(ops, isas, theme):
    """The operations by shape, in grey; then the instruction sets by tint."""
    grey = {"markerfacecolor": "none", "markeredgecolor": style.THEMES[theme]["limit"]}
    entries = [(operation(op).title, OP_MARKERS.get(op, "p"), grey) for op in ops]
    entries += [(isa_text(isa), "o", fill(isa, isas, theme)) for isa in isas if len(isas) > 1]
    return [
        Line2D([], [], linestyle="none", label=label, marker=marker, markersize=7, **face)
        for label, marker, face in entries
    ]
