"""The little T5 (models/little), layer by layer on headlane's functions, to see its attention.

headlane.models.T5 computes the same but keeps no attention probabilities. Every step here is a function of the public
Python package, and what comes out must have the bits of T5.encode() and T5.logits().
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import headlane
import numpy as np
from headlane.models import Translator


def load_tensors(file: Path) -> dict[str, np.ndarray]:
    """The float16 tensors of a safetensors file, in float32."""
    data = file.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            values = np.frombuffer(data[begin:end], np.float16).astype(np.float32)
            tensors[name] = values.reshape(entry["shape"])
    return tensors


@dataclass
class Translation:
    """A translation and what its attention looked at, token by token."""

    source: list[str]  # words and parts of words; the task's prefix and the end mark are among them
    target: list[str]
    prefix: int  # tokens of the prefix
    text: str
    embedded: np.ndarray  # [source, d_model]
    encoder: np.ndarray  # [layers, heads, source, source]
    cross: np.ndarray  # [layers, heads, target, source]


def require(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(f"does not hold: {what}")


class LittleT5:
    def __init__(self, folder: Path) -> None:
        self.translator = Translator(folder)
        self.t5 = self.translator.t5
        self.tensors = load_tensors(folder / "model.safetensors")
        self.eps = json.loads((folder / "config.json").read_text())["layer_norm_epsilon"]

    @cached_property
    def _pieces(self):
        import sentencepiece

        return sentencepiece.SentencePieceProcessor(model_file=str(Path(self.t5.folder) / "spiece.model"))

    def _linear(self, x: np.ndarray, name: str, **options) -> np.ndarray:
        return headlane.linear(x, self.tensors[name + ".weight"].T, **options)

    def _norm(self, x: np.ndarray, name: str) -> np.ndarray:
        return headlane.rms_norm(x, weight=self.tensors[name + ".weight"], eps=self.eps)

    def _heads(self, x: np.ndarray) -> np.ndarray:
        """[rows, heads * d_kv] as [1, heads, rows, d_kv]: a view."""
        return x.reshape(len(x), self.t5.config.num_heads, -1).transpose(1, 0, 2)[None]

    def _projected(self, x: np.ndarray, source: np.ndarray, block: str) -> list[np.ndarray]:
        return [
            self._heads(self._linear(x if which == "q" else source, f"{block}.{which}")) for which in "qkv"
        ]

    def _attention(
        self, x: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray, block: str, **options
    ) -> np.ndarray:
        out = headlane.scaled_dot_product_attention(q, k, v, scale=1.0, **options)
        joined = np.ascontiguousarray(out[0].transpose(1, 0, 2)).reshape(len(x), -1)
        return self._linear(joined, block + ".o", residual=x)

    def _feed_forward(self, x: np.ndarray, block: str) -> np.ndarray:
        hidden = self._linear(
            self._norm(x, block + ".layer_norm"), block + ".DenseReluDense.wi", activation="relu"
        )
        return self._linear(hidden, block + ".DenseReluDense.wo", residual=x)

    def _self_attention(self, x: np.ndarray, block: str, **options) -> tuple[np.ndarray, np.ndarray]:
        normed = self._norm(x, block + "0.layer_norm")
        q, k, v = self._projected(normed, normed, block + "0.SelfAttention")
        weights = headlane.attention_weights(q, k, scale=1.0, **options)[0]
        return self._attention(x, q, k, v, block + "0.SelfAttention", **options), weights

    def _bias(self, stack: str) -> dict:
        name = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        return {"relative_bias": self.tensors[name].T, "relative_bidirectional": stack == "encoder"}

    def encode(self, ids: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """The encoder's states, and the probabilities of its self-attention [layers, heads, tokens, tokens]."""
        x, weights = self.tensors["shared.weight"][ids], []
        for i in range(self.t5.config.num_layers):
            block = f"encoder.block.{i}.layer."
            x, looked = self._self_attention(x, block, **self._bias("encoder"))
            x = self._feed_forward(x, block + "1")
            weights.append(looked)
        return self._norm(x, "encoder.final_layer_norm"), np.stack(weights)

    def decode(self, memory: np.ndarray, output: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """The logits after each token, and the probabilities of cross-attention [layers, heads, output, memory]."""
        x, weights = self.tensors["shared.weight"][output], []
        for i in range(self.t5.config.num_decoder_layers):
            block = f"decoder.block.{i}.layer."
            x, _ = self._self_attention(x, block, is_causal=True, **self._bias("decoder"))
            normed = self._norm(x, block + "1.layer_norm")
            q, k, v = self._projected(normed, memory, block + "1.EncDecAttention")
            weights.append(headlane.attention_weights(q, k, scale=1.0)[0])
            x = self._attention(x, q, k, v, block + "1.EncDecAttention")
            x = self._feed_forward(x, block + "2")
        x = self._norm(x, "decoder.final_layer_norm") * np.float32(self.t5.config.d_model**-0.5)
        return self._linear(x, "shared"), np.stack(weights)

    def translate(self, text: str) -> Translation:
        """A greedy translation. Fails if the library computes other states, other logits or other tokens."""
        ids = self.translator.tokenize([text])[0]
        (output,) = self.t5.generate([ids], task=self.translator.task, num_beams=1)
        tokens = [token for token in output if token != self.t5.config.pad_token_id]
        given = [self.t5.config.decoder_start_token_id, *tokens[:-1]]
        memory, encoder = self.encode(ids)
        logits, cross = self.decode(memory, given)
        require(memory.tobytes() == self.t5.encode(ids).tobytes(), "the states are those of T5.encode()")
        require(
            logits.tobytes() == self.t5.logits(ids, given).tobytes(), "the logits are those of T5.logits()"
        )
        require(logits.argmax(axis=-1).tolist() == tokens, "the tokens are those of T5.generate()")
        return Translation(
            source=self._words(ids),
            target=self._words(tokens),
            prefix=len(self._pieces.encode(self.translator.prefix)),
            text=self.translator.detokenize(tokens),
            embedded=self.tensors["shared.weight"][ids],
            encoder=encoder,
            cross=cross,
        )

    def _words(self, ids: list[int]) -> list[str]:
        """Tokens for people: "-s" goes on with a word, "end" ends a sentence."""
        pieces = [self._pieces.id_to_piece(token) for token in ids]
        words = [
            piece[1:] if piece.startswith("▁") else f"-{piece}" if piece.isalpha() else piece
            for piece in pieces
        ]
        return ["end" if word == "</s>" else word or "(space)" for word in words]
