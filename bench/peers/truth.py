"""The inputs, made once for all contenders, and the float64 results that theirs are held against."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .cases import Case, padded

EPS = 2.0**-24


def inputs(case: Case, seed: int = 1) -> dict[str, np.ndarray]:
    """Normal numbers. The bool mask is padding, [batch, 1, 1, keys], the float mask a bias for each head,
    [1, heads, queries, keys]."""
    random = np.random.default_rng(seed)
    s = case.shape

    def normal(*shape: int) -> np.ndarray:
        return random.standard_normal(shape, dtype=np.float32)

    if case.op == "gemm":
        return {"a": normal(s["m"], s["k"]), "b": normal(s["k"], s["n"])}
    if case.op == "softmax":
        return {"x": normal(s["rows"], s["columns"])}
    heads, queries, keys = s["heads"], s["q_length"], s["kv_length"]
    kv = (s["batch"], heads, keys, s["head_dim"])
    made = {"q": normal(s["batch"], heads, queries, s["head_dim"]), "k": normal(*kv), "v": normal(*kv)}
    if s["mask"] == "bool":
        made["mask"] = np.broadcast_to(np.arange(keys) < padded(keys), (s["batch"], 1, 1, keys)).copy()
    if s["mask"] == "float":
        made["mask"] = normal(1, heads, queries, keys)
    return made


def write(arrays: dict[str, np.ndarray], folder: Path) -> None:
    for name, array in arrays.items():
        array.tofile(folder / name)


def output_shape(case: Case) -> tuple[int, ...]:
    s = case.shape
    if case.op == "gemm":
        return s["m"], s["n"]
    if case.op == "softmax":
        return s["rows"], s["columns"]
    return s["batch"], s["heads"], s["q_length"], s["head_dim"]


class Truth:
    """The float64 result, and per element what its error is measured in: Σ|a||b|, y + 2^-126, Σ p|v|."""

    def __init__(self, case: Case, given: dict[str, np.ndarray]) -> None:
        wide = {name: array.astype(np.float64) for name, array in given.items() if array.dtype == np.float32}
        if case.op == "gemm":
            self.result = wide["a"] @ wide["b"]
            self.scale = np.abs(wide["a"]) @ np.abs(wide["b"])
        elif case.op == "softmax":
            self.result = _softmax(wide["x"])
            self.scale = self.result + 2.0**-126
        else:
            self._attention(case, wide, given.get("mask"))

    def _attention(self, case: Case, wide: dict[str, np.ndarray], mask: np.ndarray | None) -> None:
        self.result, self.scale = np.empty(output_shape(case)), np.empty(output_shape(case))
        batch, heads, queries, dim = self.result.shape
        for b in range(batch):
            for h in range(heads):  # one head at a time: the scores of all would not fit
                scores = wide["q"][b, h] @ wide["k"][b, h].T / np.sqrt(dim)
                if case.shape["mask"] == "float":
                    scores += wide["mask"][0, h]
                if case.shape["mask"] == "bool":
                    scores[:, ~mask[b, 0, 0]] = -np.inf
                if case.shape["causal"]:
                    scores[np.triu_indices(queries, 1, scores.shape[1])] = -np.inf
                weights = _softmax(scores)
                self.result[b, h] = weights @ wide["v"][b, h]
                self.scale[b, h] = weights @ np.abs(wide["v"][b, h])

    def error(self, result: np.ndarray) -> float:
        """The largest error in units of eps = 2^-24 times the scale; NaN if anything is NaN."""
        return float(np.max(np.abs(result - self.result) / self.scale) / EPS)


def _softmax(x: np.ndarray) -> np.ndarray:
    y = np.exp(x - x.max(axis=-1, keepdims=True))
    y /= y.sum(axis=-1, keepdims=True)
    return y
