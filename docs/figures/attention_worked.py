"""The worked examples as figures and numbers, from Q, K and V to a layer."""

from __future__ import annotations

import headlane
import numpy as np

from . import draw, worked
from .draw import figure, matrix, row, term


def values() -> dict[str, str]:
    a, b = worked.example_a(), worked.example_b()
    return {
        **projections(a),
        **scores(a),
        **scale(b),
        **mask(b),
        **mixing(a),
        **heads(),
        **positions(),
        **layer(),
    }


def projections(a: worked.Attention) -> dict[str, str]:
    lines = []
    for name, weights, result, mark in (
        ("Q", a.w_q, a.q, "c1"),
        ("K", a.w_k, a.k, "c2"),
        ("V", a.w_v, a.v, "c3"),
    ):
        lines.append(
            row(
                term(matrix(a.x, "x", cell=(26, 26))),
                term(matrix(weights, f"W_{name.lower()}", mark=mark, cell=(26, 26)), "·"),
                term(matrix(result, name, mark=mark, cell=(26, 26)), "="),
            )
        )
    caption = (
        "Three inputs, a row each, times three matrices of weights: a query, a key and a value for each "
        "input."
    )
    return {"projections": figure("".join(lines), caption)}


def scores(a: worked.Attention) -> dict[str, str]:
    first = draw.spoken(a.q[:1], 0), draw.spoken(a.k[1:2], 0)
    products = " + ".join(f"{q:.0f}·{k:.0f}" for q, k in zip(a.q[0], a.k[1]))
    caption = (
        f"Each score is one dot product. Query 1 ({first[0]}) with key 2 ({first[1]}): {products} = "
        f"{a.scores[0, 1]:.0f}."
    )
    drawing = row(
        term(matrix(a.q, "Q", mark="c1", rows=("query 1", "query 2", "query 3"))),
        term(matrix(a.k.T.copy(), "Kᵀ", mark="c2", columns=("key 1", "key 2", "key 3"), cell=(42, 30)), "·"),
        term(matrix(a.scores, "scores", heat=float(a.scores.max()), cell=(36, 30)), "="),
    )
    return {"scores": figure(drawing, caption)}


def scale(b: worked.Attention) -> dict[str, str]:
    plain = headlane.softmax(b.scores)
    drawing = row(
        term(matrix(b.scores, "scores", heat=float(b.scores.max()), cell=(34, 30))),
        term(matrix(plain, "softmax(scores)", digits=2, heat=1.0)),
        term(matrix(b.weights, "softmax(scores / √3)", digits=2, heat=1.0)),
    )
    caption = (
        "Four words with three numbers each. Without the scale the largest score takes almost all; with "
        "it, others count too."
    )
    return {
        "scale": figure(drawing, caption),
        "plain_share": percent(plain[0].max()),
        "scaled_share": percent(b.weights[0].max()),
    }


def mask(b: worked.Attention) -> dict[str, str]:
    later = np.triu(np.ones_like(b.scores, dtype=bool), 1)
    causal = headlane.attention_weights(b.q[None, None], b.k[None, None], scale=b.scale, is_causal=True)[0, 0]
    word = ("word 1", "word 2", "word 3", "word 4")
    drawing = row(
        term(
            matrix(b.scaled, "scaled scores", digits=1, heat=float(b.scaled.max()), masked=later, rows=word)
        ),
        term(matrix(causal, "P", digits=2, heat=1.0, masked=later), "softmax →"),
    )
    caption = (
        "The causal mask: a word attends to itself and to those before it. A masked score counts as −∞, "
        "so its probability is 0."
    )
    return {"mask": figure(drawing, caption)}


def mixing(a: worked.Attention) -> dict[str, str]:
    terms = a.terms(1)
    drawing = row(
        term(matrix(a.weights, "P", digits=3, heat=1.0, rows=("query 1", "query 2", "query 3"))),
        term(matrix(a.v, "V", mark="c3"), "·"),
        term(matrix(a.out, "output", digits=3), "="),
    )
    caption = "Each row of P sums to 1, so that each row of the output is a weighted mean of the rows of V."
    parts = row(
        term(matrix(terms, "P(2, j) · value j", digits=3, rows=("value 1", "value 2", "value 3"))),
        term(matrix(a.out[1:2].copy(), "output 2", digits=3), "added up ="),
    )
    return {
        "mixing": figure(drawing, caption),
        "mixing_row": figure(
            parts, "The second row of the output, term by term: nearly all of it is value 2."
        ),
        "largest_weight": percent(a.weights[1].max()),
        "one_call": draw.scientific(float(np.abs(a.one_call - a.out).max())),
    }


def percent(value: float) -> str:
    return f"{100 * float(value):.0f} %"


def heads() -> dict[str, str]:
    """Example C, and its drawing: eight heads of 64 side by side."""
    length, count, size = 12, 8, 64
    generator = np.random.default_rng(1)
    q, k, v = (generator.standard_normal((length, count * size), np.float32) for _ in range(3))

    def split(x: np.ndarray) -> np.ndarray:
        return x.reshape(length, count, size).transpose(1, 0, 2)[None]

    together = np.empty((length, count * size), np.float32)
    headlane.scaled_dot_product_attention(split(q), split(k), split(v), out=split(together))
    for h in range(count):
        alone = headlane.scaled_dot_product_attention(*(split(x)[:, h : h + 1] for x in (q, k, v)))
        if alone[0, 0].tobytes() != np.ascontiguousarray(together[:, h * size : (h + 1) * size]).tobytes():
            raise AssertionError("a head alone has other bits than among eight")
    return {"heads": figure(heads_drawing(count, size), HEADS)}


HEADS = (
    "d_model = 512 as eight heads of 64. Head h reads and writes columns 64·h … 64·h + 63; nothing is copied."
)


def heads_drawing(count: int, size: int) -> str:
    wide, high, left = 38, 74, 14
    body = [draw.text(left, 14, "[length, 512], one row a word", class_="name")]
    for h in range(count):
        x = left + h * wide
        body.append(draw.rect(x, 24, wide, high, class_=f"c{h % 4 + 1}", fill_opacity=0.22 + 0.06 * (h // 4)))
        body.append(draw.text(x + wide / 2, 24 + high / 2 + 4, str(h), class_="label", text_anchor="middle"))
        body.append(draw.text(x + 1, 24 + high + 15, str(h * size), class_="size"))
    for i in range(1, 6):
        y = 24 + i * high / 6
        body.append(draw.line(left, y, left + count * wide, y, class_="split", stroke_opacity=0.12))
    body.append(draw.rect(left, 24, count * wide, high, class_="outline", rx=3))
    alt = "A matrix of 512 columns, divided into eight stripes of 64 columns, one for each head."
    return draw.svg(left + count * wide + 14, 24 + high + 24, body, alt)


def positions() -> dict[str, str]:
    """Example D, and the same large enough to see the waves."""
    few = headlane.sinusoidal_encoding(4, 8)
    rows = tuple(f"position {i}" for i in range(4))
    small = matrix(few, "encoding", digits=2, rows=rows, cell=(37, 28))
    encoding = np.empty((40, 64), np.float32)
    headlane.sinusoidal_encoding(40, 64, out=encoding)
    alt = (
        "Sinusoidal encoding of 40 positions in 64 columns: in the columns at the left the sign changes "
        "every few positions, "
        "further right ever more slowly, and the last columns hardly change."
    )
    caption = "40 positions, a row each, in 64 columns; blue is positive, orange negative."
    return {
        "few_positions": figure(small, "Four positions in eight columns: sine and cosine side by side."),
        "positions": figure(draw.raster(encoding, alt, cell=5), caption),
    }


def layer() -> dict[str, str]:
    """Example E: one call of EncoderLayer and the same in steps must give the same bits."""
    length, width, heads_, hidden = 10, 512, 8, 2048
    generator = np.random.default_rng(2)
    state = {
        "self_attn.in_proj_weight": generator.standard_normal((3 * width, width), np.float32) * 0.05,
        "self_attn.out_proj.weight": generator.standard_normal((width, width), np.float32) * 0.05,
        "linear1.weight": generator.standard_normal((hidden, width), np.float32) * 0.05,
        "linear2.weight": generator.standard_normal((width, hidden), np.float32) * 0.03,
        "norm1.weight": np.ones(width, np.float32),
        "norm2.weight": np.ones(width, np.float32),
    }
    x = generator.standard_normal((length, width), np.float32)
    at_once = headlane.EncoderLayer(state, num_heads=heads_)(x)

    projected = headlane.linear(x, state["self_attn.in_proj_weight"].T)
    q, k, v = (
        part.reshape(length, heads_, -1).transpose(1, 0, 2)[None] for part in np.split(projected, 3, axis=1)
    )
    mixed = headlane.scaled_dot_product_attention(q, k, v)[0].transpose(1, 0, 2).reshape(length, width)
    added = headlane.linear(mixed, state["self_attn.out_proj.weight"].T, residual=x)
    normed = headlane.layer_norm(added, weight=state["norm1.weight"])
    wide = headlane.linear(normed, state["linear1.weight"].T, activation="relu")
    added = headlane.linear(wide, state["linear2.weight"].T, residual=normed)
    steps = headlane.layer_norm(added, weight=state["norm2.weight"])
    if at_once.tobytes() != steps.tobytes():
        raise AssertionError("EncoderLayer has other bits than its steps")
    caption = (
        "One encoder layer. <code>EncoderLayer</code> is one call; when this page was built, it and "
        "these steps gave the same bits."
    )
    return {"layer": figure(layer_drawing(), caption)}


def layer_drawing() -> str:
    boxes = (
        ("x  [length, 512]", "", ""),
        ("multi-head attention", "c1", "Q, K, V · 8 heads · output projection"),
        ("+ x, layer norm", "c4", "residual connection, normalization"),
        ("feed-forward", "c2", "512 → 2048 → 512, ReLU between"),
        ("+ its input, layer norm", "c4", "the next layer reads this"),
    )
    left, wide, high, gap = 36.0, 236.0, 44.0, 24.0
    body = []
    for i, (label, colour, note) in enumerate(boxes):
        y = 4 + i * (high + gap)
        middle = left + wide / 2
        if colour:
            body.append(draw.rect(left, y, wide, high, class_=colour, fill_opacity=0.16, rx=6))
        body.append(draw.rect(left, y, wide, high, class_=f"outline {colour}".strip(), rx=6))
        height = y + (18 if note else 27)
        body.append(draw.text(middle, height, label, class_="name", text_anchor="middle"))
        if note:
            body.append(draw.text(middle, y + 34, note, class_="size", text_anchor="middle"))
        if i:
            body.append(draw.arrow(middle, y - gap, middle, y))
    for i, side, out in ((0, left, left - 30), (2, left + wide, left + wide + 30)):
        top, bottom = 4 + i * (high + gap) + high / 2, 4 + (i + 2) * (high + gap) + high / 2
        body.append(draw.elbow(side, top, out, bottom))
    alt = (
        "An encoder layer: the input goes through multi-head attention, is added to the result, and "
        "normalized; that goes "
        "through a feed-forward network, is added to its result, and normalized again."
    )
    return draw.svg(left + wide + 36, 4 + 5 * high + 4 * gap + 6, body, alt)
