"""Inputs of norms and layers, and their float64 results."""

from __future__ import annotations

import math

import numpy as np

from ..cases.case import Case
from ..cases.layers import ACTIVATIONS, tensors

LAYER_EPS, RMS_EPS = 1e-5, 1e-6  # every contender is told


def inputs(case: Case, random: np.random.Generator) -> dict[str, np.ndarray]:
    """Weights as large as PyTorch makes them, so that products neither grow nor vanish; those of norms around 1."""
    s = case.shape

    def normal(*shape: int) -> np.ndarray:
        return random.standard_normal(shape, dtype=np.float32)

    if case.op == "norms":
        weights = {"weight": 1 + normal(s["columns"]) / 8, "bias": normal(s["columns"]) / 8}
        return {"x": normal(s["rows"], s["columns"]), **({} if s["kind"] in ACTIVATIONS else weights)}
    made = {"x": normal(s["batch"], s["length"], s["d_model"])}
    for name, shape in tensors(s).items():
        around = 1 if name.startswith("norm") and name.endswith("weight") else 0
        made[name] = (around + normal(*shape) / (shape[1] ** 0.5 if len(shape) > 1 else 8)).astype(np.float32)
    return made


def output_shape(case: Case) -> tuple[int, ...]:
    s = case.shape
    return (s["rows"], s["columns"]) if case.op == "norms" else (s["batch"], s["length"], s["d_model"])


def result_and_scale(case: Case, given: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The result, and per element what its error is measured in."""
    wide = {name: array.astype(np.float64) for name, array in given.items()}
    kind = case.shape["kind"]
    if kind == "gelu":
        return gelu(wide["x"]), np.abs(wide["x"]) + 2.0**-126
    if kind in ACTIVATIONS:
        made = np.tanh(wide["x"]) if kind == "tanh" else 1 / (1 + np.exp(-wide["x"]))
        return made, np.abs(made) + 2.0**-126
    if case.op == "norms":
        made = _norm(wide["x"], wide["weight"], wide["bias"] if kind == "layer_norm" else None)
        return made, np.abs(wide["weight"]) + np.abs(made)
    made = (_encoder if kind == "encoder" else _attention)(wide["x"], wide, case.shape["heads"])
    return made, np.broadcast_to(np.sqrt(np.mean(made**2, axis=-1, keepdims=True)), made.shape)


_erf = np.frompyfunc(math.erf, 1, 1)  # NumPy has none


def gelu(x: np.ndarray) -> np.ndarray:
    return x / 2 * (1 + _erf(x / math.sqrt(2)).astype(np.float64))


def _norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """With a bias layer norm, without RMS norm."""
    if bias is None:
        return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + RMS_EPS) * weight
    apart = x - x.mean(axis=-1, keepdims=True)
    return apart / np.sqrt(np.mean(apart**2, axis=-1, keepdims=True) + LAYER_EPS) * weight + bias


def _attention(x: np.ndarray, weights: dict[str, np.ndarray], heads: int) -> np.ndarray:
    batch, length, d_model = x.shape
    mixed = x @ weights["self_attn.in_proj_weight"].T + weights["self_attn.in_proj_bias"]
    attended = np.empty_like(x)
    for b in range(batch):
        for h in range(heads):  # one head at a time: the scores of all would take much memory
            size = d_model // heads
            q, k, v = (mixed[b, :, i * d_model + h * size :][:, :size] for i in range(3))
            scores = q @ k.T / math.sqrt(size)
            scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
            attended[b, :, h * size :][:, :size] = scores @ v / scores.sum(axis=-1, keepdims=True)
    return attended @ weights["self_attn.out_proj.weight"].T + weights["self_attn.out_proj.bias"]


def _encoder(x: np.ndarray, weights: dict[str, np.ndarray], heads: int) -> np.ndarray:
    x = _norm(x + _attention(x, weights, heads), weights["norm1.weight"], weights["norm1.bias"])
    hidden = gelu(x @ weights["linear1.weight"].T + weights["linear1.bias"])
    more = hidden @ weights["linear2.weight"].T + weights["linear2.bias"]
    return _norm(x + more, weights["norm2.weight"], weights["norm2.bias"])
