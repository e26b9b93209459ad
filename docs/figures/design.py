"""The pictures of design.md. Their sizes are read from the sources."""

from __future__ import annotations

import re
from pathlib import Path

from . import design_attention, design_contract, design_gemm, draw
from .draw import figure

SOURCES = Path(__file__).parents[2] / "src"
# From top to bottom: each box is (name, note, first column, columns), of six columns.
HOUSE = (
    (
        ("python/", "NumPy, PyTorch", 0, 2),
        ("models/", "T5, BERT, text", 2, 2),
        ("your program", "C++, C", 4, 2),
    ),
    (("include/headlane", "the contracts: a header per operation", 0, 6),),
    (("src/layers", "Linear, MultiHeadAttention, EncoderLayer, …", 0, 6),),
    (("src/attention", "tasks, key blocks, caches", 0, 4), ("src/rowwise", "softmax, norms", 4, 2)),
    (
        ("src/gemm", "parts, blocks", 0, 2),
        ("src/position", "rotary, ALiBi", 2, 2),
        ("src/recurrent", "linear attention", 4, 2),
    ),
    (("src/core", "checks, threads, scratch memory, choice of the instruction set", 0, 6),),
    (("src/kernels", "compiled once per instruction set", 0, 6),),
)
HOUSE_CAPTION = (
    "Within src, a folder may include what lies below it, never what lies beside or above. Everybody includes "
    "the contracts."
)


def constant(name: str, file: str = "kernels/args/sizes.hpp") -> int:
    """An integer constant of the sources."""
    source = (SOURCES / file).read_text(encoding="utf-8")
    found = re.search(rf"constexpr \w+ {name} = (?:(\d+) \* )?(\w+);", source)
    if found is None:
        raise ValueError(f"src/{file} has no constant {name}")
    value = int(found[2]) if found[2].isdigit() else constant(found[2], file)
    return int(found[1] or 1) * value


def tiles() -> dict[str, tuple[int, int]]:
    """Rows and columns of the register tile, by instruction set."""
    source = (SOURCES / "kernels/gemm/tile_size.hpp").read_text(encoding="utf-8")
    found = re.findall(
        r"struct Tile(?:<([\w:]+)>)? \{\s*static constexpr int rows = (\d+), vectors = (\d+);", source
    )
    sizes = {arch: (int(rows), int(vectors) * constant("lanes")) for arch, rows, vectors in found}
    return {"AVX-512": sizes["xsimd::avx512bw"], "AVX2, NEON": sizes[""], "scalar": sizes["Scalar"]}


def values() -> dict[str, str]:
    check_house()
    sizes = {name: constant(name) for name in ("block_size", "chain_length", "lanes", "panel_columns")}
    return {
        **{name: str(value) for name, value in sizes.items()},
        "house": figure(house(), HOUSE_CAPTION),
        "gemm": design_gemm.drawing(sizes, tiles()),
        "attention": design_attention.drawing(sizes, tiles()),
        "contract": design_contract.drawing(sizes),
    }


def check_house() -> None:
    """Every include between two folders of the picture must point down."""
    level = {name: place for place, floor in enumerate(HOUSE) for name, *_ in floor}
    for file in SOURCES.rglob("*.[ch]pp"):
        here = f"src/{file.relative_to(SOURCES).parts[0]}"
        for included in re.findall(r'#include "(\w+)/', file.read_text(encoding="utf-8")):
            there = f"src/{included}"
            if there != here and level[there] <= level[here]:
                raise ValueError(
                    f"{file} includes {there}, which the picture in design.py draws above it or beside it"
                )


def house() -> str:
    column, high, gap = 57.0, 42.0, 6.0
    body = []
    for floor, boxes in enumerate(HOUSE):
        for name, note, first, count in boxes:
            tall = 2 * high + gap if name == "src/rowwise" else high
            x, y, width = 2 + first * column, 2 + floor * (high + gap), count * column - gap
            colour = {0: "c4", 1: "c2"}.get(floor, "c3" if floor > 4 else "c1")
            body.append(draw.rect(x, y, width, tall, class_=colour, fill_opacity=0.14, rx=5))
            body.append(draw.rect(x, y, width, tall, class_=f"outline {colour}", rx=5))
            middle = x + width / 2
            body.append(draw.text(middle, y + tall / 2 - 3, name, class_="name", text_anchor="middle"))
            body.append(draw.text(middle, y + tall / 2 + 13, note, class_="size", text_anchor="middle"))
    alt = "The folders as floors, from top to bottom: " + "; ".join(
        ", ".join(f"{name} ({note})" for name, note, *_ in boxes) for boxes in HOUSE
    )
    return draw.svg(6 * column, len(HOUSE) * (high + gap), body, alt)
