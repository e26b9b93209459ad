"""The cases of PyTorch models with random weights: encoders, and decoders that read a prompt and generate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .case import FLOAT, Case

PROMPT, NEW_TOKENS = 512, 64
IMAGE, PATCH, CHANNELS = 224, 16, 3
MELS, FRAMES, KERNEL = 80, 3000, 3  # of Whisper, whose second convolution halves the frames
OPS = ("encode", "prefill", "generate")


@dataclass(frozen=True)
class Shape:
    """The sizes of a model, which is a class of transformers."""

    title: str
    kind: str
    layers: int
    d_model: int
    d_ff: int
    heads: int
    vocabulary: int = 0
    kv_heads: int = 0  # 0: as many as heads
    gated: bool = False  # the feed-forward layers have three matrices

    @property
    def head_dim(self) -> int:
        return self.d_model // self.heads

    @property
    def cached(self) -> int:
        """Numbers that a token leaves in the cache."""
        return 2 * self.layers * (self.kv_heads or self.heads) * self.head_dim

    @property
    def weights(self) -> int:
        """Of the layers' matrices."""
        attention = 2 * self.d_model**2 + 2 * self.d_model * (self.kv_heads or self.heads) * self.head_dim
        return self.layers * (attention + (3 if self.gated else 2) * self.d_model * self.d_ff)

    @property
    def head(self) -> int:
        """Weights of a decoder's output layer."""
        return self.vocabulary * self.d_model

    def products(self, tokens: int, pairs: float) -> float:
        """Operations of the layers' products, with so many pairs of a query and a key."""
        return 2 * self.weights * tokens + 4 * self.layers * self.d_model * pairs

    def front(self) -> float:
        """Operations of what makes an image's or a sound's first states: convolutions."""
        if self.kind == "ViTModel":
            return 2 * (IMAGE // PATCH) ** 2 * CHANNELS * PATCH**2 * self.d_model
        if self.kind == "WhisperModel":
            return 2 * FRAMES * KERNEL * self.d_model * (MELS + self.d_model / 2)
        return 0


SHAPES = {
    "bert-base": Shape("BERT-base", "BertModel", 12, 768, 3072, 12, 30522),
    "minilm": Shape("MiniLM", "BertModel", 6, 384, 1536, 12, 30522),
    "vit-base": Shape("ViT-B/16", "ViTModel", 12, 768, 3072, 12),
    "whisper-tiny": Shape("Whisper-tiny's encoder", "WhisperModel", 4, 384, 1536, 6),
    "gpt2": Shape("GPT-2", "GPT2LMHeadModel", 12, 768, 3072, 12, 50257),
    # 0.39 billion parameters, 66 million of them in the embedding and the output layer.
    "llama": Shape("Llama 0.4B", "LlamaForCausalLM", 24, 1024, 3584, 16, 32000, kv_heads=4, gated=True),
}
LENGTH = {"vit-base": (IMAGE // PATCH) ** 2 + 1, "whisper-tiny": FRAMES // 2}  # in tokens


def encode(model: str, batch: int, length: int = 0, quick: bool = False) -> Case:
    """The states of the last layer."""
    shape, tokens = SHAPES[model], length or LENGTH[model]
    return Case(
        "encode",
        f"{shape.title} {batch}x{tokens}",
        {"model": model, "batch": batch, "length": tokens, "rows": tokens, "width": shape.d_model},
        batch * (shape.products(tokens, tokens**2) + shape.front()),
        FLOAT * (shape.weights + 2 * batch * tokens * shape.d_model),
        "fma",
        quick=quick,
    )


def prefill(model: str, batch: int, quick: bool = False) -> Case:
    """The logits behind a prompt. Masked scores do not count as work."""
    shape = SHAPES[model]
    flops = shape.products(PROMPT, PROMPT * (PROMPT + 1) / 2) + 2 * shape.head
    return Case(
        "prefill",
        f"{shape.title} {batch}x{PROMPT}",
        {"model": model, "batch": batch, "length": PROMPT, "rows": 1, "width": shape.vocabulary},
        batch * flops,
        FLOAT * (shape.weights + shape.head + 2 * batch * PROMPT * shape.d_model),
        "fma",
        quick=quick,
    )


def generate(model: str, batch: int, quick: bool = False) -> Case:
    """Greedy search: the time from the first new token, which the prompt gives, to the one NEW_TOKENS behind it.
    A step reads all weights and the cache; those of fewer bits are counted when it is measured."""
    shape = SHAPES[model]
    keys = NEW_TOKENS * PROMPT + NEW_TOKENS * (NEW_TOKENS + 1) // 2  # that are read in all steps
    flops = shape.products(NEW_TOKENS, keys) + 2 * NEW_TOKENS * shape.head
    read = FLOAT * (NEW_TOKENS * (shape.weights + shape.head) + batch * keys * shape.cached)
    sizes = {"batch": batch, "length": PROMPT, "tokens": NEW_TOKENS, "cached": batch * keys * shape.cached}
    return Case(
        "generate",
        f"{shape.title} batch {batch}",
        {"model": model, **sizes, "rows": NEW_TOKENS + 1, "width": shape.vocabulary},
        batch * flops,
        read,
        "read",
        read,
        quick,
    )


ENCODE = [
    encode("bert-base", 1, 16, quick=True),
    encode("bert-base", 1, 128),
    encode("bert-base", 8, 128),
    encode("minilm", 1, 16, quick=True),
    encode("minilm", 1, 128),
    encode("minilm", 32, 128),
    encode("vit-base", 1),
    encode("vit-base", 8),
    encode("whisper-tiny", 1),
]
DECODERS = [(model, batch) for model in ("gpt2", "llama") for batch in (1, 8)]
PREFILL = [prefill(model, batch, quick=(model, batch) == ("gpt2", 1)) for model, batch in DECODERS]
GENERATE = [generate(model, batch, quick=(model, batch) == ("gpt2", 1)) for model, batch in DECODERS]
ALL = [*ENCODE, *PREFILL, *GENERATE]


def inputs(case: Case, seed: int = 1) -> np.ndarray:
    """Token ids, int64 [batch, length]; images, float32 [batch, channels, height, width]; spectra of sounds, float32
    [batch, mels, frames]."""
    random, batch, shape = np.random.default_rng(seed), case.shape["batch"], SHAPES[case.shape["model"]]
    if shape.vocabulary:
        return random.integers(1000, shape.vocabulary, (batch, case.shape["length"]))
    size = (CHANNELS, IMAGE, IMAGE) if shape.kind == "ViTModel" else (MELS, FRAMES)
    return random.standard_normal((batch, *size), np.float32)
