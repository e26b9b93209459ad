"""The cases of whole models: T5 generates, MiniLM encodes, also sentences of natural lengths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .case import FLOAT, STEPS, Case, Phase

NEW_TOKENS = 64
INPUT_TOKENS = 16
VOCABULARY = 32128
WORDS = 14  # of a sentence, on average
FIRST, LAST = 101, 102  # [CLS] and [SEP] of BERT's vocabulary


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
    # In the last step of the mean number of tokens, and of the input.
    keys = batch * NEW_TOKENS * ((NEW_TOKENS + 1) / 2 + INPUT_TOKENS)
    cached = 2 * FLOAT * shape.layers * shape.heads * shape.d_kv
    encoder = Phase(2 * batch * shape.encoder_weights * INPUT_TOKENS, read=FLOAT * shape.encoder_weights)
    steps = Phase(
        2 * batch * shape.decoder_weights * NEW_TOKENS + keys * cached / 2,
        read=read + keys * cached,
        buffer=read / NEW_TOKENS,
    )
    return Case(
        "t5",
        f"{model}, batch {batch}",
        {"model": model, "batch": batch, "input": INPUT_TOKENS, "tokens": NEW_TOKENS},
        2 * batch * tokens,
        read,
        "read",
        read,
        quick,
        phases=(encoder, steps),
    )


@dataclass(frozen=True)
class MiniLM:
    """The sizes of all-MiniLM-L6-v2."""

    layers: int = 6
    heads: int = 12
    d_model: int = 384
    d_ff: int = 1536
    vocabulary: int = 30522

    @property
    def weights(self) -> int:
        return self.layers * (4 * self.d_model**2 + 2 * self.d_model * self.d_ff)

    def flops(self, length: int) -> int:
        """Of the products for one sentence."""
        return length * (2 * self.weights + self.layers * 4 * self.d_model * length)

    def steps(self, length: int) -> int:
        """Of the exponentials, GELU and norms for one sentence; the embedding has a norm too."""
        norm = STEPS["layer_norm"] * self.d_model
        token = self.heads * STEPS["exponential"] * length + STEPS["gelu"] * self.d_ff + 2 * norm
        return length * (self.layers * token + norm)

    def shape(self, batch: int) -> dict[str, Any]:
        return {"model": "minilm", "batch": batch, "d_model": self.d_model, "vocabulary": self.vocabulary}


def minilm(batch: int, length: int, quick: bool = False) -> Case:
    """The states of the last layer."""
    model = MiniLM()
    flops, states = batch * model.flops(length), FLOAT * batch * length * model.d_model
    return Case(
        "minilm",
        f"{batch}x{length}",
        {**model.shape(batch), "length": length},
        flops,
        FLOAT * model.weights + 2 * states,
        "fma",
        quick=quick,
        phases=(Phase(flops, batch * model.steps(length), FLOAT * model.weights + states, states),),
    )


def sentences(batch: int, quick: bool = False) -> Case:
    """A vector for each sentence: the mean of its states of the last layer, normalized to length 1. Padding is
    no work."""
    model, lengths = MiniLM(), sentence_lengths(batch)
    all_tokens = int(lengths.sum())
    flops, steps = (sum(map(each, lengths.tolist())) for each in (model.flops, model.steps))
    return Case(
        "sentences",
        f"{batch} sentences",
        {**model.shape(batch), "all_tokens": all_tokens, "longest": int(lengths.max())},
        flops,
        FLOAT * (model.weights + (all_tokens + batch) * model.d_model),
        "fma",
        quick=quick,
        phases=(
            Phase(
                flops,
                steps,
                FLOAT * (model.weights + all_tokens * model.d_model),
                FLOAT * batch * model.d_model,
            ),
        ),
    )


def sentence_lengths(batch: int, seed: int = 2) -> np.ndarray:
    """int64 [batch], in tokens: a log-normal number of words, whose mean is WORDS, and the two tokens that begin
    and end a sentence."""
    spread = 0.6
    words = np.random.default_rng(seed).lognormal(np.log(WORDS) - spread**2 / 2, spread, batch)
    return np.clip(np.rint(words).astype(np.int64) + 2, 3, 128)


T5 = [t5(model, batch, quick=model == "t5-small" and batch == 1) for model in T5_SHAPES for batch in (1, 16)]
MINILM = [minilm(1, 16, True), minilm(1, 128, True), minilm(32, 128)]
SENTENCES = [sentences(64, True), sentences(1000)]
ALL = [*T5, *MINILM, *SENTENCES]


def token_ids(case: Case, seed: int = 1) -> np.ndarray:
    """int64 [batch, tokens]: ordinary ones, and for T5 the end of sentence after them. No padding. Sentences of
    different lengths are one behind the other, int64 [tokens of all]."""
    random = np.random.default_rng(seed)
    if case.op == "sentences":
        lengths = sentence_lengths(case.shape["batch"])
        ends = np.cumsum(lengths)
        ids = random.integers(1000, case.shape["vocabulary"], ends[-1])
        ids[ends - lengths], ids[ends - 1] = FIRST, LAST
        return ids
    if case.op == "minilm":
        return random.integers(1000, case.shape["vocabulary"], (case.shape["batch"], case.shape["length"]))
    ids = random.integers(3, 32000, (case.shape["batch"], case.shape["input"]))
    ids[:, -1] = 1
    return ids
