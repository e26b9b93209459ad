"""Attention in three steps: tasks over blocks of keys, a tile in a block, and the merge."""

from __future__ import annotations

from . import draw
from .draw import figure, panels, term

CAPTION = (
    "1: the scores of one head, which are never stored; a task owns some rows of queries and visits the "
    "blocks of keys in order. "
    "2: what a tile of rows does in one block. 3: how a block joins the blocks before it."
)


def drawing(sizes: dict[str, int], tiles: dict[str, tuple[int, int]]) -> str:
    return figure(panels(term(tasks(sizes)), term(block(sizes, tiles)), term(merge())), CAPTION)


def tasks(sizes: dict[str, int]) -> str:
    left, top, cell = 58.0, 44.0, 38.0
    count = 4
    side = count * cell
    body = [draw.text(0, 14, "1  Tasks and blocks", class_="name")]
    for i in range(count):
        for j in range(count):
            x, y = left + j * cell, top + i * cell
            if j < i:
                body.append(draw.rect(x, y, cell, cell, class_="c1", fill_opacity=0.45 if i == 2 else 0.14))
            if j == i:
                triangle = f"M{draw.number(x)} {draw.number(y)}v{cell:g}h{cell:g}z"
                body.append(draw.tag("path", d=triangle, class_="c1", fill_opacity=0.45 if i == 2 else 0.14))
            body.append(draw.rect(x, y, cell, cell, class_="hair"))
        body.append(
            draw.text(left - 8, top + (i + 0.5) * cell + 4, f"task {i}", class_="small", text_anchor="end")
        )
    for j, order in enumerate(("1st", "2nd", "3rd")):
        y = top + 2.5 * cell + (10 if j == 2 else 4)
        body.append(
            draw.text(
                left + (j + (0.3 if j == 2 else 0.5)) * cell, y, order, class_="small", text_anchor="middle"
            )
        )
    body.append(draw.rect(left, top + 2 * cell, side, cell, class_="outline c1"))
    body.append(draw.rect(left, top, side, side, class_="outline"))
    body.append(
        draw.text(
            left + side / 2,
            top - 8,
            f"keys, blocks of {sizes['block_size']}",
            class_="size",
            text_anchor="middle",
        )
    )
    body.append(draw.text(left, top + side + 18, "empty: masked (causal), skipped", class_="size"))
    alt = (
        f"Rows of queries against blocks of {sizes['block_size']} keys with a causal mask: the third task "
        "visits three blocks in order."
    )
    return draw.svg(left + side + 10, top + side + 28, body, alt)


def block(sizes: dict[str, int], tiles: dict[str, tuple[int, int]]) -> str:
    rows = tiles["AVX-512"][0]
    steps = (
        ("q · Kᵀ", f"tile of {rows} rows of the scaled q, fma chains", "c1"),
        ("bias, mask", "while the scores are in registers", "c1"),
        ("m = max(scores)", f"{rows} × {sizes['block_size']} scores, in the L1", "c2"),
        ("p = exp(scores − m), s = Σ p", "the block's own maximum and sum", "c2"),
        ("p · V", "fma chain over the keys of the block", "c3"),
    )
    return draw.flow("2  A tile in a block", steps, 232.0, "A tile of rows in a block of keys: ")


def merge() -> str:
    steps = (
        ("new = max(max, m)", "of all blocks so far", "c2"),
        ("keep = exp(max − new)", "weight of what was there", "c2"),
        ("add = exp(m − new)", "weight of this block", "c2"),
        ("sum = sum · keep + s · add", "one fma", "c4"),
        ("out = out · keep + p·V · add", "after the last block: out / sum", "c4"),
    )
    return draw.flow("3  Merge (online softmax)", steps, 206.0, "A block joins the running result: ")
