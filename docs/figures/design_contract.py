"""The arithmetic contract: chains of fma for each element, lanes that do not matter, sums that fold in one way."""

from __future__ import annotations

from . import draw
from .draw import figure, panels, term

CAPTION = (
    "1: the operations of one element of c, always these, in this order, from k = 0 on. 2: a register holds several "
    "elements, and each keeps its own "
    "chain; the width changes nothing. 3: the sum of a row of exponentials has 16 partial sums on every "
    "instruction set (norms have 64), and folds in one way."
)


def drawing(sizes: dict[str, int]) -> str:
    return figure(panels(term(chain(sizes)), term(widths(sizes)), term(fold(sizes))), CAPTION)


def chain(sizes: dict[str, int]) -> str:
    last, block = sizes["chain_length"] - 1, sizes["block_size"]
    steps = (
        ("0", "a new chain", ""),
        ("fma(a₀, b₀, ·)", "one rounding", "c1"),
        ("fma(a₁, b₁, ·)", "…", "c1"),
        (f"fma(a[{last}], b[{last}], ·)", "the end of the chain", "c1"),
        ("sum = sum + chain", f"{block // sizes['chain_length']} chains are a block of {block}", "c2"),
        ("c = fma(alpha, sum, c)", "then the next block", "c3"),
    )
    return draw.flow("1  One element, a sum of chains", steps, 190.0, "The operations of one element: ")


def widths(sizes: dict[str, int]) -> str:
    lanes, left, cell, top = sizes["lanes"], 8.0, 13.0, 40.0
    kinds = (("AVX-512", 16, "c1"), ("AVX2", 8, "c2"), ("NEON", 4, "c3"), ("scalar", 1, "c4"))
    body = [draw.text(0, 14, f"2  {lanes} elements, any register", class_="name")]
    for k, (name, width, colour) in enumerate(kinds):
        y = top + k * 48
        count = f"{lanes // width} register" + ("s" if lanes > width else "")
        body.append(draw.text(left, y, f"{name}: {count}", class_="size"))
        for first in range(0, lanes, width):
            x = left + first * cell
            body.append(
                draw.rect(x + 0.8, y + 6, width * cell - 1.6, 22, class_=colour, fill_opacity=0.2, rx=3)
            )
            body.append(draw.rect(x + 0.8, y + 6, width * cell - 1.6, 22, class_=f"outline {colour}", rx=3))
        for j in range(lanes):
            x = left + (j + 0.5) * cell
            body.append(draw.line(x, y + 10, x, y + 24, class_="arrow"))
    alt = (
        f"{lanes} elements side by side: in one register of AVX-512, two of AVX2, four of NEON, or "
        "sixteen floats; the chains are the same."
    )
    return draw.svg(left + lanes * cell + 8, top + 4 * 48, body, alt)


def fold(sizes: dict[str, int]) -> str:
    lanes, left, cell, top, step = sizes["lanes"], 8.0, 13.0, 58.0, 34.0
    body = [draw.text(0, 14, "3  The sum in softmax", class_="name")]
    body.append(draw.text(left, 36, f"element i is added to partial sum i mod {lanes}", class_="size"))
    width, floor = lanes, 0
    while True:
        y = top + floor * step
        for j in range(width):
            body.append(draw.rect(left + j * cell + 1, y, cell - 2, 14, class_="c1", fill_opacity=0.55, rx=2))
        body.append(draw.text(left + lanes * cell + 6, y + 11, str(width), class_="size"))
        if width == 1:
            break
        width //= 2
        for j in range(width):
            for source in (j, j + width):
                x = left + (source + 0.5) * cell
                body.append(draw.line(x, y + 14, left + (j + 0.5) * cell, y + step, class_="grid"))
        floor += 1
    alt = (
        f"{lanes} partial sums are folded to 8, 4, 2 and 1: the upper half is added to the lower half "
        "each time."
    )
    return draw.svg(left + lanes * cell + 24, top + floor * step + 24, body, alt)
