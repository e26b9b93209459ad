"""Figures as inline SVG, each with real text and a text alternative.

Colours have names; assets/figures.css of the site decides light and dark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

import numpy as np

LIGHT, DARK = ("#ffffff", "#2f6fb5"), ("#1e2229", "#6ea8e8")  # ground and heat: --figure-1 in site.css


def tag(name: str, body: str = "", /, **attributes: object) -> str:
    """<name a="b">body</name>; `class_` is class, other underscores are hyphens."""
    names = {key: key.rstrip("_").replace("_", "-") for key in attributes}
    given = "".join(
        f' {names[key]}="{escape(number(value) if isinstance(value, float) else str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{given}>{body}</{name}>" if body else f"<{name}{given}/>"


def number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def scientific(value: float) -> str:
    """4.8 · 10⁻⁷"""
    digits, exponent = f"{value:.1e}".split("e")
    return f"{digits} · 10" + str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def text(x: float, y: float, content: str, **attributes: object) -> str:
    return tag("text", escape(content), x=float(x), y=float(y), **attributes)


def line(x1: float, y1: float, x2: float, y2: float, **attributes: object) -> str:
    return tag("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), **attributes)


def rect(x: float, y: float, width: float, height: float, **attributes: object) -> str:
    return tag("rect", x=float(x), y=float(y), width=float(width), height=float(height), **attributes)


def svg(width: float, height: float, body: Iterable[str], alt: str, class_: str = "") -> str:
    """As wide as it is drawn and no wider than the page."""
    return tag(
        "svg",
        "".join(body),
        class_=f"figure {class_}".strip(),
        viewBox=f"0 0 {number(width)} {number(height)}",
        width=number(width),
        height=number(height),
        role="img",
        aria_label=alt,
    )


def figure(content: str, caption: str) -> str:
    """On one line: Markdown then leaves it alone."""
    return f'<figure class="drawn">{content}<figcaption>{caption}</figcaption></figure>'


def row(*items: str) -> str:
    """Side by side, with operators between them; on a phone one below the other."""
    return '<div class="terms">' + "".join(items) + "</div>"


def panels(*items: str) -> str:
    """Drawings side by side, their titles on one line; on a phone one below the other."""
    return '<div class="terms panels">' + "".join(items) + "</div>"


def term(content: str, operator: str = "") -> str:
    sign = f'<span class="operator">{operator}</span>' if operator else ""
    return f'<div class="term">{sign}{content}</div>'


def _luminance(colour: tuple[float, ...]) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _rgb(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))


def on_heat(share: float) -> str:
    """The class of a text on a cell of this heat: black or white, whichever reads better, in each theme."""
    letters = ""
    for ground, heat in (LIGHT, DARK):
        mixed = tuple(g + share * (h - g) for g, h in zip(_rgb(ground), _rgb(heat)))
        brightness = _luminance(mixed)
        letters += "b" if (brightness + 0.05) ** 2 > 0.05 * 1.05 else "w"
    return "on-" + letters


def spoken(values: np.ndarray, digits: int) -> str:
    """The rows of a matrix for a text alternative."""
    return "; ".join(" ".join(shown(value, digits) for value in values_of_row) for values_of_row in values)


def shown(value: float, digits: int) -> str:
    if not np.isfinite(value):
        return "−∞" if value < 0 else "∞"
    if value == round(value) and digits == 0:
        return f"{value:.0f}".replace("-", "−")
    return f"{value:.{digits}f}".replace("-", "−")


def matrix(
    values: np.ndarray,
    name: str = "",
    *,
    digits: int = 0,
    heat: float | None = None,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    masked: np.ndarray | None = None,
    mark: str = "",
    cell: tuple[float, float] | None = None,
) -> str:
    """A matrix with its numbers.

    heat: cells are coloured by their share of this value; None: plain. masked: cells that take no part.
    mark: a class for the outline. rows, columns: labels.
    """
    m, n = values.shape
    wide, high = cell or (30 + 7.5 * digits + (6 if digits else 0), 30)
    left = 8 + max((7.2 * len(label) for label in rows), default=-8)
    top = (24 if name else 4) + (20 if columns else 0)
    width, height = left + n * wide + 2, top + m * high + 20
    body = []
    if name:
        body.append(tag("text", name_text(name), x=float(left), y=14.0, class_=f"name {mark}".strip()))
    for j, label in enumerate(columns):
        body.append(text(left + (j + 0.5) * wide, top - 6, label, class_="label", text_anchor="middle"))
    for i in range(m):
        if rows:
            middle = top + (i + 0.5) * high + 4.5
            body.append(text(left - 8, middle, rows[i], class_="label", text_anchor="end"))
        for j in range(n):
            hidden = masked is not None and masked[i, j]
            body.append(
                _cell(values[i, j], left + j * wide, top + i * high, wide, high, digits, heat, hidden)
            )
    outline = f"outline {mark}".strip()
    body.append(rect(left, top, n * wide, m * high, class_=outline, rx=3))
    body.append(text(left + n * wide / 2, height - 5, f"{m} × {n}", class_="size", text_anchor="middle"))
    alt = f"{name.replace('_', ' ') or 'Matrix'}, {m} by {n}: {spoken(values, digits)}"
    return svg(max(width, left + 7.5 * len(name)), height, body, alt)


def name_text(name: str) -> str:
    """W_q with its index set lower."""
    base, _, index = name.partition("_")
    return escape(base) + (tag("tspan", escape(index), dy=3, font_size=10) if index else "")


def _cell(
    value: float,
    x: float,
    y: float,
    wide: float,
    high: float,
    digits: int,
    heat: float | None,
    masked: bool,
) -> str:
    if masked:
        cross = line(x + wide / 2 - 4, y + high / 2, x + wide / 2 + 4, y + high / 2, class_="masked-mark")
        return rect(x, y, wide, high, class_="cell masked") + cross
    share = 0.0 if heat is None else min(1.0, max(0.0, float(value) / heat))
    below = rect(x, y, wide, high, class_="cell")
    if share > 0:
        below += rect(x, y, wide, high, class_="heat", fill_opacity=round(share, 3))
    style = "value" if heat is None else f"value {on_heat(share)}"
    return below + text(
        x + wide / 2, y + high / 2 + 4.5, shown(value, digits), class_=style, text_anchor="middle"
    )


def heat_map(
    values: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    alt: str,
    *,
    cell: float = 28,
    numbers: bool = True,
    title: str = "",
    heading: tuple[str, str] = ("", ""),
    split: int = 0,
) -> str:
    """Probabilities, rows by columns; column labels stand aslant. split: a line before this column."""
    m, n = values.shape
    left = 14 + max((7.0 * len(label) for label in rows), default=0)
    slant = 8 + max((5.2 * len(label) for label in columns), default=0)
    top = slant + (22 if title else 4) + (16 if heading[0] else 0)
    width, height = left + n * cell + max(24, 0.72 * slant), top + m * cell + 6
    body = [text(0, 13, title, class_="name")] if title else []
    if heading[0]:
        body.append(text(left, 29 if title else 11, heading[0] + " →", class_="size"))
        body.append(text(left - 10, top - 8, heading[1] + " ↓", class_="size", text_anchor="end"))
    for j, label in enumerate(columns):
        x, y = left + (j + 0.5) * cell + 2, top - 6
        turn = f"rotate(-48 {number(x)} {number(y)})"
        body.append(text(x, y, label, class_="label", transform=turn))
    for i, label in enumerate(rows):
        y = top + i * cell
        body.append(text(left - 8, y + cell / 2 + 4.5, label, class_="label", text_anchor="end"))
        for j in range(n):
            share = float(min(1.0, max(0.0, values[i, j])))
            x = left + j * cell
            body.append(rect(x, y, cell, cell, class_="cell"))
            if share >= 0.005:
                body.append(rect(x, y, cell, cell, class_="heat", fill_opacity=round(share, 2)))
            if numbers and share >= 0.05:
                body.append(
                    text(
                        x + cell / 2,
                        y + cell / 2 + 4,
                        f"{100 * share:.0f}",
                        class_=f"percent {on_heat(share)}",
                        text_anchor="middle",
                    )
                )
    if split:
        body.append(line(left + split * cell, top, left + split * cell, top + m * cell, class_="split"))
    body.append(rect(left, top, n * cell, m * cell, class_="outline", rx=2))
    return svg(width, height, body, alt)


def raster(values: np.ndarray, alt: str, *, cell: float, levels: int = 12) -> str:
    """Values from -1 to 1 as small squares, one path for each level: blue above 0, orange below."""
    m, n = values.shape
    step = np.clip(np.rint(values * levels), -levels, levels).astype(int)
    body = []
    for level in range(-levels, levels + 1):
        places = np.argwhere(step == level)
        if level == 0 or len(places) == 0:
            continue
        squares = "".join(f"M{j} {i}h1v1h-1z" for i, j in places)
        kind = "heat" if level > 0 else "cold"
        body.append(tag("path", d=squares, class_=kind, fill_opacity=round(abs(level) / levels, 2)))
    inside = tag("g", "".join(body), transform=f"scale({number(cell)})", shape_rendering="crispEdges")
    frame = rect(0.5, 0.5, n * cell - 1, m * cell - 1, class_="outline")
    return svg(n * cell, m * cell, [rect(0, 0, n * cell, m * cell, class_="cell"), inside, frame], alt)


def _head(x: float, y: float, dx: float, dy: float) -> str:
    """An arrow's head at (x, y), of an arrow in the direction (dx, dy) of length 1."""
    left, right = (
        (x - 7 * dx - 3.5 * dy, y - 7 * dy + 3.5 * dx),
        (x - 7 * dx + 3.5 * dy, y - 7 * dy - 3.5 * dx),
    )
    points = " ".join(f"{number(px)},{number(py)}" for px, py in (left, (x, y), right))
    return tag("polygon", points=points, class_="head")


def arrow(x1: float, y1: float, x2: float, y2: float, class_: str = "") -> str:
    length = float(np.hypot(x2 - x1, y2 - y1))
    dx, dy = (x2 - x1) / length, (y2 - y1) / length
    shaft = line(x1, y1, x2 - 5 * dx, y2 - 5 * dy, class_=f"arrow {class_}".strip())
    return shaft + _head(x2, y2, dx, dy)


def elbow(x: float, y1: float, out: float, y2: float) -> str:
    """From (x, y1) out to the side and back to (x, y2)."""
    end = x - 5 if out < x else x + 5
    path = f"M{number(x)} {number(y1)}H{number(out)}V{number(y2)}H{number(end)}"
    return tag("path", d=path, class_="arrow") + _head(x, y2, 1 if out < x else -1, 0)


def flow(title: str, steps: Sequence[tuple[str, str, str]], wide: float, spoken_before: str) -> str:
    """Boxes one below the other: (text, note, class)."""
    high, gap, top = 34.0, 12.0, 26.0
    body = [text(0, 14, title, class_="name")]
    for i, (label, note, colour) in enumerate(steps):
        y, middle = top + i * (high + gap), 4 + wide / 2
        if colour:
            body.append(rect(4, y, wide, high, class_=colour, fill_opacity=0.14, rx=5))
        body.append(rect(4, y, wide, high, class_=f"outline {colour}".strip(), rx=5))
        body.append(text(middle, y + 15, label, class_="label", text_anchor="middle"))
        body.append(text(middle, y + 28, note, class_="size", text_anchor="middle"))
        if i:
            body.append(arrow(middle, y - gap, middle, y))
    alt = spoken_before + "; ".join(f"{label} ({note})" for label, note, _ in steps)
    return svg(wide + 8, top + len(steps) * (high + gap), body, alt)
