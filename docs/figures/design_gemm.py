"""GEMM in three steps: the parts of c, the blocks of a part, the tile in registers."""

from __future__ import annotations

from . import draw
from .draw import figure, panels, term

CAPTION = (
    "1: tasks own parts of c and never share an element. 2: one part; a block along k at a time, a strip "
    "of rows against the panels of "
    "that block. 3: the innermost loop; each step along k adds one product to every element of the tile."
)


def drawing(sizes: dict[str, int], tiles: dict[str, tuple[int, int]]) -> str:
    return figure(panels(term(parts()), term(blocks(sizes, tiles)), term(tile(sizes, tiles))), CAPTION)


def parts() -> str:
    left, top, wide, high = 26.0, 40.0, 170.0, 140.0
    body = [draw.text(0, 14, "1  Parts of c", class_="name")]
    for i in range(4):
        x, y = left + i % 2 * wide / 2, top + i // 2 * high / 2
        body.append(draw.rect(x, y, wide / 2, high / 2, class_=f"c{i + 1}", fill_opacity=0.18))
        body.append(draw.rect(x, y, wide / 2, high / 2, class_="outline"))
        body.append(
            draw.text(x + wide / 4, y + high / 4 + 4, f"task {i}", class_="label", text_anchor="middle")
        )
    body.append(draw.text(left + wide / 2, top - 8, "n columns", class_="size", text_anchor="middle"))
    body.append(draw.text(left - 8, top + high / 2, "m", class_="size", text_anchor="end"))
    body.append(draw.text(left, top + high + 18, "threads take tasks until none is left", class_="size"))
    return draw.svg(
        left + wide + 12, top + high + 26, body, "The matrix c divided into four parts, a task each."
    )


def blocks(sizes: dict[str, int], tiles: dict[str, tuple[int, int]]) -> str:
    rows, depth = tiles["AVX-512"][0], sizes["block_size"]
    a, b, c = (8.0, 118.0, 96.0, 84.0), (116.0, 28.0, 118.0, 78.0), (116.0, 118.0, 118.0, 84.0)
    stripe = 32.0  # of a, and as high in b
    body = [draw.text(0, 14, "2  Blocks and panels", class_="name")]
    for name, (x, y, w, h) in (("a", a), ("b", b), ("c", c)):
        body.append(draw.rect(x, y, w, h, class_="outline", rx=2))
        body.append(draw.text(x + w - 8, y + h - 7, name, class_="name", text_anchor="end"))
    body.append(draw.rect(a[0] + stripe, a[1], stripe, a[3], class_="c1", fill_opacity=0.15))
    body.append(draw.rect(b[0], b[1] + 23, b[2], stripe, class_="c2", fill_opacity=0.15))
    for i in range(1, 8):
        x = b[0] + i * b[2] / 8
        body.append(draw.line(x, b[1] + 23, x, b[1] + 23 + stripe, class_="grid"))
    strip = a[1] + 26
    body.append(draw.rect(a[0] + stripe, strip, stripe, 12, class_="c1", fill_opacity=0.75))
    body.append(draw.rect(b[0] + b[2] / 4, b[1] + 23, b[2] / 8, stripe, class_="c2", fill_opacity=0.75))
    body.append(draw.rect(c[0], strip, c[2], 12, class_="c3", fill_opacity=0.2))
    body.append(draw.rect(c[0] + c[2] / 4, strip, c[2] / 8, 12, class_="c3", fill_opacity=0.85))
    kib = rows * depth * 4 // 1024
    notes = (
        f"block: {depth} along k, in order",
        f"strip of a: {rows} rows, {kib} KiB, stays in the L1",
        f"panel of b: {sizes['panel_columns']} columns, from the L2",
    )
    body += [draw.text(8, 222 + 15 * i, note, class_="size") for i, note in enumerate(notes)]
    alt = (
        f"c = a · b: a block of {depth} columns of a meets as many rows of b, which lie in panels of "
        f"{sizes['panel_columns']} columns; "
        f"a strip of {rows} rows goes along all panels."
    )
    return draw.svg(244, 260, body, alt)


def tile(sizes: dict[str, int], tiles: dict[str, tuple[int, int]]) -> str:
    rows, columns = tiles["AVX-512"]
    left, top, wide, step = 44.0, 66.0, 160.0, 9.0
    high = rows * step
    body = [draw.text(0, 14, "3  Tile in registers", class_="name")]
    body.append(draw.rect(left, top - 18, wide, step, class_="c2", fill_opacity=0.75))
    body.append(
        draw.text(left + wide, top - 24, f"b[p, j], {columns} columns", class_="size", text_anchor="end")
    )
    body.append(draw.rect(left - 18, top, step, high, class_="c1", fill_opacity=0.75))
    body.append(
        draw.text(
            left - 24,
            top + high / 2,
            "a[i, p]",
            class_="size",
            text_anchor="middle",
            transform=turned(left - 24, top + high / 2),
        )
    )
    vectors = columns // sizes["lanes"]
    for j in range(vectors):
        for i in range(rows):
            x = left + j * wide / vectors
            body.append(draw.rect(x, top + i * step, wide / vectors, step, class_="c3", fill_opacity=0.16))
            body.append(draw.rect(x, top + i * step, wide / vectors, step, class_="hair"))
    body.append(draw.rect(left, top, wide, high, class_="outline c3"))
    body.append(
        draw.text(
            left + wide / 2, top + high / 2 + 4, "acc = fma(a, b, acc)", class_="name", text_anchor="middle"
        )
    )
    for i, (isa, (r, w)) in enumerate(tiles.items()):
        body.append(draw.text(left, top + high + 20 + 15 * i, f"{isa}: {r} × {w}", class_="size"))
    alt = f"A tile of {rows} rows and {columns} columns of accumulators, fed by a column of a and a row of b."
    return draw.svg(left + wide + 8, top + high + 60, body, alt)


def turned(x: float, y: float) -> str:
    return f"rotate(-90 {draw.number(x)} {draw.number(y)})"
