"""The cases of GEMM, softmax and attention, and the list of all operations' cases."""

from __future__ import annotations

import numpy as np

from .case import FLOAT, STEPS, Case, Phase
from .layers import LAYERS


def gemm(m: int, n: int, k: int, quick: bool = False) -> Case:
    """With one row the limit is memory: b is streamed."""
    shape = {"m": m, "n": n, "k": k}
    kind = ("read", FLOAT * k * n) if m == 1 else ("fma", 0)
    flops, read, written = 2 * m * n * k, FLOAT * (m * k + k * n), FLOAT * m * n
    phases = (Phase(flops, read=read, written=written),)
    return Case("gemm", f"{m}x{n}x{k}", shape, flops, read + written, *kind, quick=quick, phases=phases)


BITS = {"bfloat16": 16, "w8": 8, "w4": 4.5, "w8a8": 8}  # of a weight, with its part of a scale


def lowbit(m: int, n: int, k: int, mode: str, quick: bool = False) -> Case:
    """A product by weights of fewer bits (routes/lowbit.py). With one row the limit is reading them; with more
    the FMA peak of float32, which products of integers exceed."""
    shape = {"m": m, "n": n, "k": k, "mode": mode}
    stored = int(BITS[mode] * n * k / 8)
    kind = ("read", stored) if m == 1 else ("fma", 0)
    moved = FLOAT * (m * k + m * n) + stored
    label, needs = f"{m}x{n}x{k} {mode}", frozenset({mode})
    return Case("lowbit", label, shape, 2 * m * n * k, moved, *kind, quick=quick, needs=needs)


def softmax(rows: int, columns: int, quick: bool = False, *, mask: bool = False) -> Case:
    """Five operations per element: maximum, difference, exponential, sum, quotient. The mask excludes an
    eighth of the elements, at random places."""
    size = rows * columns
    return Case(
        "softmax",
        f"{rows}x{columns}" + (" masked" if mask else ""),
        {"rows": rows, "columns": columns, "mask": mask},
        5 * size,
        2 * FLOAT * size + (size if mask else 0),
        "copy",
        FLOAT * size,
        quick,
        phases=(Phase(0, STEPS["softmax"] * size, FLOAT * size + (size if mask else 0), FLOAT * size),),
    )


KEY_BYTES = {
    None: lambda dim: FLOAT * dim,
    "bfloat16": lambda dim: 2 * dim,
    "int8": lambda dim: dim + FLOAT,  # and the scale
}
NAMES = {
    "dense": "dense bool mask",
    "bits": "bit mask",
    "alibi": "ALiBi",
    "t5": "T5 bias",
    "softcap": "softcap",
}


def attention(
    q_length: int,
    kv_length: int | None = None,
    *,
    batch: int = 1,
    heads: int = 8,
    kv_heads: int | None = None,
    dim: int = 64,
    causal: bool = False,
    mask: str | None = None,
    window: tuple[int, int] = (-1, -1),
    option: str | None = None,
    stored: str | None = None,
    op: str | None = None,
    base: str = "",
    quick: bool = False,
) -> Case:
    """Eight heads of 64 by default. Pairs of a query and a visible key count as work; all pairs with a
    random mask, which excludes no whole block of keys.

    mask: "bool" (padding), "ragged" (sentences of SHORTEST to q_length tokens, padded to q_length; padding
    counts neither as queries nor as keys), "dense" (a random bool mask), "bits" (the same, packed), "float" (a bias per
    head). window: the numbers of visible keys before and after the query's own; (-1, -1) is unlimited.
    option: "softcap", "alibi" or "t5". stored: the type of the keys and values that are read, "bfloat16" or
    "int8", which has a scale for each."""
    decode = kv_length is not None
    keys = kv_length or q_length
    shape = {"batch": batch, "heads": heads, "q_length": q_length, "kv_length": keys, "head_dim": dim}
    shape |= {"kv_heads": kv_heads or heads, "causal": causal, "mask": mask, "option": option}
    shape |= {"left": window[0], "right": window[1]}
    visible = {"bool": padded(keys)}.get(mask or "", keys)
    pairs = visible_pairs(q_length, visible, left=window[0], right=0 if causal else window[1])
    shape |= {"stored": stored} if stored else {}
    token = 2 * shape["kv_heads"] * KEY_BYTES[stored](dim)  # bytes of a key and its value
    moved = batch * (FLOAT * dim * 2 * heads * q_length + token * visible)
    if mask == "ragged":
        lengths = ragged_lengths(batch, q_length)
        pairs, moved = sum(lengths**2) / batch, FLOAT * heads * dim * 4 * int(sum(lengths))
    masks = {"bool": batch * keys, "dense": q_length * keys, "bits": q_length * -(-keys // 8)}
    masks["float"] = FLOAT * heads * q_length * keys
    name = f"{keys} keys" if decode else f"L={q_length}"
    parts = [(f"{batch}x" if batch > 1 else "") + name]
    parts += ["1 head"] * (heads == 1) + [f"{heads} heads on {kv_heads}"] * bool(kv_heads)
    parts += [f"head_dim {dim}"] * (dim != 64) + [f"in {stored}"] * bool(stored) + ["causal"] * causal
    parts += [f"window {window[0] + 1 + window[1]}"] * (window != (-1, -1))
    parts += [f"of {SHORTEST} to {q_length}"] * (mask == "ragged")
    parts += [NAMES.get(word, f"{word} mask") for word in (mask, option) if word and word != "ragged"]
    needs = {name for name in (option, mask if mask in ("bits", "ragged") else None) if name}
    needs |= {f"keys in {stored}"} if stored else set()
    needs |= {"gqa"} if shape["kv_heads"] != heads else set()
    needs |= {"window"} if window != (-1, -1) else set()
    flops, written = 4 * batch * heads * pairs * dim, moved_out(moved, batch * token * visible, mask)
    moved += masks.get(mask or "", 0)
    return Case(
        op or ("decode" if decode else "attention"),
        " ".join(parts),
        shape,
        flops,
        moved,
        "read" if decode else "fma",
        batch * token * keys if decode else 0,
        quick,
        frozenset(needs),
        base,
        (Phase(flops, STEPS["exponential"] * flops / (4 * dim), moved - written, written),),
    )


def moved_out(moved: float, keys: float, mask: str | None) -> float:
    """Bytes of the output, of those that are moved: q is as large. Of ragged sentences k and v are too."""
    return moved / 4 if mask == "ragged" else (moved - keys) / 2


def visible_pairs(queries: int, keys: int, left: int, right: int) -> int:
    """Pairs of a query and a key at most `left` before it and `right` after it; -1: any number."""
    if left < 0 and right < 0:
        return queries * keys
    ends = (keys if right < 0 else min(keys, i + right + 1) for i in range(queries))
    return sum(max(0, end - (max(0, i - left) if left >= 0 else 0)) for i, end in enumerate(ends))


SHORTEST = 5  # tokens of a sentence


def ragged_lengths(batch: int, longest: int) -> np.ndarray:
    """int64 [batch], SHORTEST to longest, the same in every run."""
    return np.random.default_rng(3).integers(SHORTEST, longest + 1, batch)


def padded(length: int) -> int:
    """The number of keys that the padding mask leaves visible: the last quarter is padding."""
    return length - length // 4


GEMM = [
    gemm(1, 512, 512, True),
    gemm(8, 512, 512),
    gemm(32, 512, 512, True),
    gemm(128, 512, 512),
    gemm(512, 512, 512, True),
    gemm(2048, 512, 512),
    gemm(512, 1536, 512),
    gemm(512, 2048, 512),
    gemm(512, 512, 2048),
    gemm(2048, 2048, 2048),
    gemm(512, 512, 64),
    gemm(512, 64, 512),
    gemm(2048, 2048, 64),
    gemm(128, 128, 64),
    gemm(64, 64, 64, True),
    gemm(17, 33, 65),
]
SOFTMAX = [
    softmax(512, 64, True),
    softmax(4096, 128),
    softmax(4096, 512, True),
    softmax(4096, 512, mask=True),
    softmax(512, 4096),
    softmax(16384, 2048),
]
LENGTHS = (16, 64, 128, 512, 1024, 2048, 4096)


def options(length: int, base: str = "", **more) -> Case:
    """A case of the second table, where the cost of an option is told against the case called base."""
    return attention(length, op="attention_options", base=base, **more)


ATTENTION = [
    *(attention(length, quick=length in (16, 128, 512)) for length in LENGTHS),
    *(attention(length, causal=True, quick=length == 512) for length in LENGTHS),
    attention(512, mask="bool"),
    attention(512, mask="float"),
    attention(128, batch=32),
    *(attention(length, batch=64, quick=length == 32) for length in (16, 32, 64)),
    attention(60, batch=64, mask="ragged"),
    attention(2048, heads=1),
    attention(16384),
    options(16384, "L=16384", window=(128, 127)),
    options(16384, "L=16384", causal=True, window=(255, 0)),
    options(2048),
    *(options(2048, "L=2048", mask=mask) for mask in ("float", "dense", "bits")),
    *(options(2048, "L=2048", option=option) for option in ("t5", "softcap")),
    options(2048, "L=2048", causal=True),
    options(
        2048, "L=2048 causal", causal=True, option="alibi"
    ),  # without, keys behind the query get scores of 1000
    options(1024, quick=True),
    options(1024, "L=1024", kv_heads=2, quick=True),
    *(options(1024, dim=dim) for dim in (32, 80, 96, 128, 256)),
    attention(1, 512, quick=True),
    attention(1, 4096),
    attention(1, 1024, batch=8),
    attention(1, 1024, batch=8, heads=32, kv_heads=8),  # grouped queries, as in most language models
    attention(1, 32768),
    *(
        attention(1, keys, batch=batch, stored=stored)
        for stored in ("bfloat16", "int8")
        for keys, batch in ((1024, 8), (32768, 1))
    ),
]
MEMORY = [attention(65536, causal=True, op="memory")]  # not among ALL: no speed is measured
LOWBIT = [
    lowbit(*shape, mode, quick=shape == (2048, 512, 512))
    for shape in ((1, 32768, 512), (16, 2048, 512), (2048, 512, 512), (512, 2048, 512))
    for mode in BITS
]
ALL = {"gemm": GEMM, "lowbit": LOWBIT, "softmax": SOFTMAX, "attention": ATTENTION, "layers": LAYERS}
