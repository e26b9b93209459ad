"""The cases of whole models: T5 generates, MiniLM encodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .case import FLOAT, Case

NEW_TOKENS = 64
INPUT_TOKENS = 16
VOCABULARY = 32128


@dataclass(frozen=True)
class Shape:
    """The sizes of a T5, as in config.json."""

    name: str
    d_model: int
    layers: int  # of the encoder, and of the decoder
    heads: int
    d_ff: int
    d_kv: int = 64

    @property
    def decoder_weights(self) -> int:
        """Weights that a step reads: the decoder's matrices and the output layer. The matrices for keys and
        values of the input are read once per sequence."""
        inner = self.heads * self.d_kv
        layer = 6 * self.d_model * inner + 2 * self.d_model * self.d_ff
        return self.layers * layer + VOCABULARY * self.d_model

    @property
    def encoder_weights(self) -> int:
        """And the matrices of the decoder that are applied to the encoder's output."""
        inner = self.heads * self.d_kv
        layer = 4 * self.d_model * inner + 2 * self.d_model * self.d_ff
        return self.layers * (layer + 2 * self.d_model * inner)


T5_SHAPES = {
    shape.name: shape for shape in (Shape("t5-small", 512, 6, 8, 2048), Shape("t5-base", 768, 12, 12, 3072))
}


def t5(model: str, batch: int, quick: bool = False) -> Case:
    """Greedy search with exactly NEW_TOKENS tokens per input. Only products with weights count as work."""
    shape = T5_SHAPES[model]
    read = FLOAT * NEW_TOKENS * shape.decoder_weights
    tokens = shape.encoder_weights * INPUT_TOKENS + shape.decoder_weights * NEW_TOKENS
    return Case(
        "t5",
        f"{model}, batch {batch}",
        {"model": model, "batch": batch, "input": INPUT_TOKENS, "tokens": NEW_TOKENS},
        2 * batch * tokens,
        read,
        "read",
        read,
        quick,
    )


def minilm(batch: int, length: int, quick: bool = False) -> Case:
    """all-MiniLM-L6-v2: 6 layers of 384, 12 heads, d_ff 1536. The states of the last layer."""
    layers, d_model, d_ff, vocabulary = 6, 384, 1536, 30522
    weights = layers * (4 * d_model**2 + 2 * d_model * d_ff)
    return Case(
        "minilm",
        f"{batch}x{length}",
        {"model": "minilm", "batch": batch, "length": length, "d_model": d_model, "vocabulary": vocabulary},
        batch * length * (2 * weights + layers * 4 * d_model * length),
        FLOAT * (weights + 2 * batch * length * d_model),
        "fma",
        quick=quick,
    )


T5 = [t5(model, batch, quick=model == "t5-small" and batch == 1) for model in T5_SHAPES for batch in (1, 16)]
MINILM = [minilm(1, 16, True), minilm(1, 128, True), minilm(32, 128)]
ALL = [*T5, *MINILM]


def token_ids(case: Case, seed: int = 1) -> np.ndarray:
    """int64 [batch, tokens]: ordinary ones, and for T5 the end of sentence after them. No padding."""
    random = np.random.default_rng(seed)
    if case.op == "minilm":
        return random.integers(1000, case.shape["vocabulary"], (case.shape["batch"], case.shape["length"]))
    ids = random.integers(3, 32000, (case.shape["batch"], case.shape["input"]))
    ids[:, -1] = 1
    return ids
