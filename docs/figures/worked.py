"""The worked examples of examples/worked_examples.hpp.

Their inputs are read from that header; all else is computed by headlane.
"""

from __future__ import annotations

import re
from pathlib import Path

import headlane
import numpy as np

HEADER = Path(__file__).parents[2] / "examples" / "worked_examples.hpp"
MATRIX = re.compile(r"const Matrix (\w+)\((\d+), (\d+), \{([^}]*)\}\);")


def inputs(example: str) -> dict[str, np.ndarray]:
    """The matrices that print_example_a or print_example_b begins with."""
    body = (
        HEADER.read_text(encoding="utf-8").split(f"inline bool print_example_{example}(")[1].split("\n}\n")[0]
    )
    return {
        name: np.array([float(value) for value in values.split(",")], np.float32).reshape(
            int(rows), int(columns)
        )
        for name, rows, columns, values in MATRIX.findall(body)
    }


class Attention:
    """All matrices of one attention, each by a function of the Python package."""

    def __init__(
        self, x: np.ndarray, w_q: np.ndarray, w_k: np.ndarray, w_v: np.ndarray, scale: float
    ) -> None:
        self.x, self.w_q, self.w_k, self.w_v, self.scale = x, w_q, w_k, w_v, scale
        self.q, self.k, self.v = (headlane.matmul(x, w) for w in (w_q, w_k, w_v))
        self.scores = headlane.matmul(self.q, self.k.T)
        self.scaled = self.scores * np.float32(scale)
        self.weights = headlane.softmax(self.scores, scale=scale)
        self.out = headlane.matmul(self.weights, self.v)
        self.one_call = headlane.scaled_dot_product_attention(self.q, self.k, self.v, scale=scale)

    def terms(self, row: int) -> np.ndarray:
        """What each key adds to a row of the output."""
        return self.weights[row][:, None] * self.v


def example_a() -> Attention:
    m = inputs("a")
    return Attention(m["x"], m["w_q"], m["w_k"], m["w_v"], 1.0)


def example_b() -> Attention:
    m = inputs("b")
    return Attention(m["words"], m["w_q"], m["w_k"], m["w_v"], float(1 / np.sqrt(np.float32(3))))
