"""Puts the figures, the tables and the template together; and makes the pictures for the README."""

import textwrap
from contextlib import contextmanager
from pathlib import Path

import jinja2
import matplotlib
from markupsafe import Markup

from . import data, figures, style, summary, svg, tables
from .figures.base import number, percent, threads_text

HERE = Path(__file__).parent


@contextmanager
def drawn(figure, theme, narrow):
    """The drawing, while its settings hold: they are needed for writing it too."""
    name = f"{figure.name}-{'narrow' if narrow else 'wide'}"
    with matplotlib.rc_context(style.rc(theme, narrow, name)):
        yield figure.draw(theme, narrow)


def drawings(figure):
    """The figure for wide and for narrow screens; the style sheet shows one of them."""
    elements = []
    for narrow, kind in ((False, "wide"), (True, "narrow")):
        with drawn(figure, "light", narrow) as canvas:
            elements.append(svg.inline(canvas, figure.alt, kind))
    return Markup("".join(elements))


def pictures(report, folder):
    for figure in figures.build(report):
        for theme in style.THEMES:
            path = folder / f"{figure.name}-{theme}.png"
            with drawn(figure, theme, False) as canvas:
                add_title(canvas, textwrap.wrap(figure.title, 96))
                canvas.savefig(path, dpi=2 * style.PIXELS_PER_INCH)
            yield path


def add_title(canvas, lines):
    """Adds the title, a heading on the page, in a strip above the drawing, and a margin around both."""
    width, height = canvas.get_size_inches() * style.PIXELS_PER_INCH
    margin, strip = 18, 24 * len(lines) + 30
    full_width, full_height = width + 2 * margin, height + strip + margin
    canvas.set_size_inches(full_width / style.PIXELS_PER_INCH, full_height / style.PIXELS_PER_INCH)
    box = (margin / full_width, margin / full_height, width / full_width, height / full_height)
    engine = canvas.get_layout_engine()
    engine.set(rect=(*box[:3], box[3] * engine.get()["rect"][3]))
    for legend in canvas.legends:
        legend.set_bbox_to_anchor(box, canvas.transFigure)
    top = 1 - margin / full_height
    canvas.text(box[0], top, "\n".join(lines), fontsize=17, fontweight="bold", va="top", linespacing=1.4)


def environment():
    result = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    result.filters.update(
        number=number,
        ratio=lambda value: "–" if value is None else f"{value:.2f}×",
        percent=percent,
        threads=threads_text,
        drawings=drawings,
        counts=summary.counts_text,
        moment=lambda date: date.replace("T", " ").replace("Z", " UTC"),
    )
    return result


def variables(colours):
    return Markup("; ".join(f"--{name}: {value}" for name, value in colours.items()))


def sections(report, shown):
    """One for each operation that was measured, with its figures and its table; loading and memory have no figure."""
    for op in report.ops():
        yield {
            "op": op,
            "title": data.operation(op).title,
            "figures": [figure for figure in shown if figure.op == op],
            "table": tables.results(report, op),
        }
    for op, title, table in (
        ("loading", "Loading models", tables.loading(report)),
        ("memory", "Memory of attention", tables.memory(report)),
    ):
        if table.rows:
            yield {"op": op, "title": title, "figures": [], "table": table}


def html(report):
    shown = figures.build(report)
    return (
        environment()
        .get_template("template.html")
        .render(
            css=Markup((HERE / "style.css").read_text(encoding="utf-8")),
            light=variables(style.LIGHT),
            dark=variables(style.DARK),
            report=report,
            lines=summary.lines(report),
            not_ahead=summary.not_ahead(report),
            overview=[figure for figure in shown if figure.name == "overview"],
            machine_figures=[figure for figure in shown if figure.op is None and figure.name != "overview"],
            sections=list(sections(report, shown)),
            limits=tables.limits(report),
            operation=data.operation,
        )
    )
