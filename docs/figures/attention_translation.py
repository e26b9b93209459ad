"""A sentence, its embedding, and what the little T5 looks at while it translates it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from . import draw
from .draw import figure, row, term
from .little_t5 import LittleT5, Translation

FOLDER = Path(__file__).parents[2] / "models" / "little" / "en-fr"
SENTENCE = "The boy does not eat red apples."


def values() -> dict[str, str]:
    t = LittleT5(FOLDER).translate(SENTENCE)
    return {
        "sentence": SENTENCE,
        "translation": t.text,
        "tokens": ", ".join(f"`{word}`" for word in own(t)[0]),
        "embedding": embedding(t),
        "encoder_heads": encoder_heads(t),
        **cross(t),
    }


def own(t: Translation) -> tuple[list[str], slice]:
    """The sentence without the task's prefix."""
    place = slice(t.prefix, len(t.source))
    return t.source[place], place


def embedding(t: Translation) -> str:
    words, place = own(t)
    part = t.embedded[place]
    shown = part / np.abs(part).max()
    cell, left, high = 4.0, 62.0, 20.0
    width = left + 64 * cell
    body = []
    for i, word in enumerate(words):
        body.append(draw.text(left - 8, i * high + 15, word, class_="label", text_anchor="end"))
        for j in range(64):
            share = float(shown[i, j])
            kind = "heat" if share > 0 else "cold"
            square = draw.rect(
                left + j * cell, i * high, cell, high - 3, class_=kind, fill_opacity=round(abs(share), 2)
            )
            body.append(square)
    alt = f"The embeddings of {', '.join(words)}: a row of numbers for each, in colours."
    caption = f"The first 64 of the {part.shape[1]} numbers of each token; blue is positive, orange negative."
    return figure(draw.svg(width + 4, len(words) * high, body, alt), caption)


def encoder_heads(t: Translation) -> str:
    words, place = own(t)
    maps = []
    for head in range(t.encoder.shape[1]):
        part = t.encoder[-1, head][place, place]
        alt = f"Head {head}: " + looked_at(words, words, part)
        maps.append(
            term(draw.heat_map(part, words, words, alt, cell=19, numbers=False, title=f"head {head}"))
        )
    caption = (
        "The four heads of the encoder's last layer on this sentence: each row is a token, the colours "
        "say how much it "
        "attends to each of the others. What they give to the task's prefix is not drawn."
    )
    return figure(row(*maps), caption)


def looked_at(rows: list[str], columns: list[str], weights: np.ndarray) -> str:
    """A text alternative: the largest probability of each row."""
    return "; ".join(
        f"{word} attends to {columns[weights[i].argmax()]} with {weights[i].max():.2f}"
        for i, word in enumerate(rows)
    )


def with_prefix_as_one(t: Translation, weights: np.ndarray) -> tuple[np.ndarray, list[str]]:
    prefix = weights[..., : t.prefix].sum(axis=-1, keepdims=True)
    return np.concatenate([prefix, weights[..., t.prefix :]], axis=-1), ["(prefix)", *own(t)[0]]


def cross(t: Translation) -> dict[str, str]:
    weights, source = with_prefix_as_one(t, t.cross)
    last = weights[-1].mean(axis=0)
    alt = "Cross-attention, mean of the heads of the last layer: " + looked_at(t.target, source, last)
    large = draw.heat_map(last, t.target, source, alt, cell=30, heading=("English", "French"), split=1)
    small = []
    for layer in range(len(weights)):
        for head in range(weights.shape[1]):
            alt = f"Layer {layer + 1}, head {head}: " + looked_at(t.target, source, weights[layer, head])
            title = f"layer {layer + 1}, head {head}"
            small.append(
                term(
                    draw.heat_map(
                        weights[layer, head],
                        t.target,
                        source,
                        alt,
                        cell=17,
                        numbers=False,
                        title=title,
                        split=1,
                    )
                )
            )
    caption = (
        "Rows: the French tokens as they are written. Columns: the English tokens. Each number is a "
        "probability in percent, "
        "the mean of the four heads of the decoder's last layer; below 5 it is left out."
    )
    return {
        "cross": figure(large, caption),
        "cross_heads": figure(
            row(*small),
            "Each head of both layers of the decoder. The first layer is hard to read; the second has "
            "learned a dictionary.",
        ),
        "cross_text": strongest(t.target, source, last),
        "crossing": crossing(t.target, source, last),
    }


def strongest(rows: list[str], columns: list[str], weights: np.ndarray) -> str:
    """The words that one word of the input explains, in a sentence."""
    pairs = [
        f"at *{columns[weights[i].argmax()]}* for *{word}* ({100 * weights[i].max():.0f} %)"
        for i, word in enumerate(rows)
        if weights[i].max() >= 0.6 and word.isalpha() and columns[weights[i].argmax()].isalpha()
    ]
    return ", ".join(pairs[:-1]) + " and " + pairs[-1]


def crossing(rows: list[str], columns: list[str], weights: np.ndarray) -> str:
    """Neighbours in French that look at English words in the other order."""
    at = weights.argmax(axis=1)
    for i in range(len(rows) - 1):
        if at[i] > at[i + 1] > 0 and weights[i].max() > 0.8 and weights[i + 1].max() > 0.8:
            return f"*{rows[i]}* comes before *{rows[i + 1]}*, but *{columns[at[i]]}* after *{columns[at[i + 1]]}*"
    raise AssertionError("no words change places in this sentence")
