"""What a figure is, and the parts that several of them share: panels, legends, axes."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from .. import style


@dataclass(frozen=True)
class Figure:
    """`title` says what the data show, `caption` how to read it, `alt` what there is to see."""

    name: str
    title: str
    caption: str
    alt: str
    draw: Callable  # (theme, narrow) -> matplotlib figure
    op: str | None = None  # whose section of the page it belongs to


def threads_text(threads):
    return "1 thread" if threads == 1 else f"{threads} threads"


def count(number, thing):
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


ISA_NAMES = {"avx512": "AVX-512", "avx2": "AVX2", "neon": "NEON"}


def isa_text(isa):
    return ISA_NAMES.get(isa, isa or "–")


def percent(value):
    return "–" if value is None else f"{value * 100:.0f}\u00a0%"


def number(value):
    """Three digits that mean something, no exponent."""
    if value is None:
        return "–"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def panels(amount, narrow, height, handles, **options):
    """`amount` axes under a legend: two in a row in a wide figure, one in a narrow one. `height` is that of the inside
    of a panel in pixels."""
    columns = 1 if narrow else min(2, amount)
    rows = -(-amount // columns)
    legend_columns = columns_of(handles, narrow)
    below, above = rows * (max(height, 40) + 84), -(-len(handles) // legend_columns) * 19 + 10
    size = style.NARROW if narrow else style.WIDE, below + above
    canvas = Canvas(figsize=[side / style.PIXELS_PER_INCH for side in size], layout="constrained")
    rect = 0, 0, 1, below / (below + above)
    canvas.get_layout_engine().set(w_pad=0.03, h_pad=0.08, wspace=0.03, hspace=0.05, rect=rect)
    axes = list(canvas.subplots(rows, columns, squeeze=False, **options).flat)
    for spare in axes[amount:]:
        spare.remove()
    legend(canvas, handles, legend_columns, narrow)
    return canvas, axes[:amount]


def columns_of(handles, narrow):
    """How many columns of a legend fit."""
    widths = sorted(6.9 * len(handle.get_label()) + 30 for handle in handles)
    if narrow:
        return 2 if sum(widths[-2:]) < style.NARROW else 1
    return len(handles) if sum(widths) < style.WIDE - 20 * len(handles) else 5


def legend(canvas, handles, columns, narrow):
    """Above the panels, where it covers nothing; filled row by row, while matplotlib goes by columns."""
    rows = -(-len(handles) // columns)
    handles = [handles[row * columns + column] for column in range(columns) for row in range(rows)
               if row * columns + column < len(handles)]  # fmt: skip
    box = canvas.legend(
        handles=handles,
        loc="upper left",
        ncols=columns,
        handletextpad=0.5,
        columnspacing=1 if narrow else 1.4,
        borderaxespad=0.2,
        borderpad=0.1,
        handlelength=1.2 if narrow else 1.6,
    )
    box.set_in_layout(False)  # panels() keeps its place free


def entry(look, theme, prepacked=False, line="none"):
    label = look.name + (" (weights prepacked)" if prepacked and "prepacked" not in look.name.lower() else "")
    return Line2D([], [], linestyle=line, label=label, **look.marks(theme, 7))


def round_numbers(low, high):
    """1, 2 and 5 times the powers of ten in between; over many decades the powers alone."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (
        (1,)
        if math.log10(high / low) > 2.5
        else (1, 2, 5)
        if math.log10(high / low) > 0.7
        else (1, 1.5, 2, 3, 4, 5, 6, 8)
    )
    return [value for power in powers for factor in factors if low <= (value := factor * 10.0**power) <= high]


def logarithmic(axis, ticks=None, text="{:,g}"):
    """Ticks of a logarithmic axis as people write them; without a list, round numbers within its limits."""
    axis.set_ticks(ticks or round_numbers(*axis.get_view_interval()))
    axis.set_ticks([], minor=True)
    axis.set_major_formatter(FuncFormatter(lambda value, _: text.format(value)))
