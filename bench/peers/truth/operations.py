"""The inputs, made once for all contenders, and the float64 results that theirs are held against."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..cases.case import Case
from ..cases.operations import padded, ragged_lengths
from . import layers

EPS = 2.0**-24


SOFTCAP = 30  # the workers are told
BUCKETS, MAX_DISTANCE = 32, 128  # T5's, for both directions


def inputs(case: Case, seed: int = 1) -> dict[str, np.ndarray]:
    """Normally distributed numbers. Masks: "bool" is padding, [batch, 1, 1, keys]; "ragged" the
    lengths, [batch]; "dense" excludes an eighth of
    the keys at random, [1, 1, queries, keys]; "bits" is the same, packed; "float" is a bias per head, [1,
    heads, queries, keys]."""
    random = np.random.default_rng(seed)
    s = case.shape

    def normal(*shape: int) -> np.ndarray:
        return random.standard_normal(shape, dtype=np.float32)

    def scattered(*shape: int) -> np.ndarray:
        return random.integers(8, size=shape, dtype=np.uint8) != 0

    if case.op in ("gemm", "lowbit"):
        return {"a": normal(s["m"], s["k"]), "b": normal(s["k"], s["n"])}
    if case.op in ("norms", "layers"):
        return layers.inputs(case, random)
    if case.op == "softmax":
        shape = (s["rows"], s["columns"])
        return {"x": normal(*shape), **({"mask": scattered(*shape)} if s["mask"] else {})}
    heads, queries, keys = s["heads"], s["q_length"], s["kv_length"]
    kv = (s["batch"], s["kv_heads"], keys, s["head_dim"])
    made = {"q": normal(s["batch"], heads, queries, s["head_dim"]), "k": normal(*kv), "v": normal(*kv)}
    if s["mask"] == "bool":
        made["mask"] = np.broadcast_to(np.arange(keys) < padded(keys), (s["batch"], 1, 1, keys)).copy()
    if s["mask"] == "ragged":
        made["lengths"] = ragged_lengths(s["batch"], keys)
    if s["mask"] in ("dense", "bits"):
        made["mask"] = scattered(1, 1, queries, keys)
    if s["mask"] == "bits":
        made["bits"] = np.packbits(made["mask"], axis=-1, bitorder="little")
    if s["mask"] == "float":
        made["mask"] = normal(1, heads, queries, keys)
    if s["option"] == "alibi":
        made["table"] = np.exp2(-8 * np.arange(1, heads + 1) / heads).astype(np.float32)
    if s["option"] == "t5":
        made["table"] = normal(heads, BUCKETS)
    return made


def write(arrays: dict[str, np.ndarray], folder: Path) -> None:
    for name, array in arrays.items():
        array.tofile(folder / name)


def output_shape(case: Case) -> tuple[int, ...]:
    s = case.shape
    if case.op in ("gemm", "lowbit"):
        return s["m"], s["n"]
    if case.op == "softmax":
        return s["rows"], s["columns"]
    if case.op in ("norms", "layers"):
        return layers.output_shape(case)
    return s["batch"], s["heads"], s["q_length"], s["head_dim"]


def checked_rows(case: Case) -> np.ndarray:
    """The queries whose results are compared with float64: all, or for long cases, where that would take minutes,
    the first, the last and some 256 at random."""
    queries = case.shape["q_length"]
    if queries * case.shape["kv_length"] <= 2048**2:
        return np.arange(queries)
    some = np.random.default_rng(2).choice(queries, 256, replace=False)
    return np.unique([0, *some, queries - 1])


def t5_buckets(distance: np.ndarray) -> np.ndarray:
    """The bucket of each distance key - query: as many for either direction, of which half are single distances."""
    half, single = BUCKETS // 2, BUCKETS // 4
    size = np.abs(distance)
    share = np.log(np.maximum(size, single) / single) / np.log(MAX_DISTANCE / single)
    # The small number: where the exact value is whole, the logarithms may be just below.
    far = np.minimum(single + (share * (half - single) + 1e-9).astype(np.int64), half - 1)
    return np.where(distance > 0, half, 0) + np.where(size < single, size, far)


class Truth:
    """The float64 result, and per element what its error is measured in: Σ|a||b|, y + 2^-126, Σ p|v|, and so on."""

    def __init__(self, case: Case, given: dict[str, np.ndarray]) -> None:
        small = case.op in ("gemm", "lowbit", "softmax")
        wide = {
            name: given[name].astype(np.float64)
            for name in given
            if small and given[name].dtype == np.float32
        }
        self.rows: np.ndarray | None = None  # of attention: the queries that were computed
        if case.op in ("gemm", "lowbit"):
            self.result = wide["a"] @ wide["b"]
            self.scale = np.abs(wide["a"]) @ np.abs(wide["b"])
        elif case.op == "softmax":
            self.result = _softmax(
                np.where(given["mask"], wide["x"], -np.inf) if "mask" in given else wide["x"]
            )
            self.scale = self.result + 2.0**-126
        elif case.op in ("norms", "layers"):
            self.result, self.scale = layers.result_and_scale(case, given)
        else:
            self._attention(case, given)

    def _attention(self, case: Case, given: dict[str, np.ndarray]) -> None:
        s = case.shape
        rows = self.rows = checked_rows(case)
        distance = np.arange(s["kv_length"]) - rows[:, None]
        hidden = np.zeros(distance.shape, bool)
        if s["causal"]:
            hidden |= distance > 0
        if s["left"] >= 0:
            hidden |= distance < -s["left"]
        if s["right"] >= 0:
            hidden |= distance > s["right"]
        if s["mask"] in ("dense", "bits"):
            hidden |= ~given["mask"][0, 0, rows]
        self.result = np.empty((s["batch"], s["heads"], len(rows), s["head_dim"]))
        self.scale = np.empty_like(self.result)
        for b in range(s["batch"]):
            for h in range(s["heads"]):  # one head at a time: the scores of all would not fit
                k, v = (given[name][b, h * s["kv_heads"] // s["heads"]].astype(np.float64) for name in "kv")
                scores = given["q"][b, h, rows].astype(np.float64) @ k.T / np.sqrt(s["head_dim"])
                if s["option"] == "softcap":
                    scores = np.tanh(scores / SOFTCAP) * SOFTCAP
                if s["option"] == "alibi":
                    scores += np.float64(given["table"][h]) * distance
                if s["option"] == "t5":
                    scores += given["table"][h].astype(np.float64)[t5_buckets(distance)]
                if s["mask"] == "float":
                    scores += given["mask"][0, h, rows]
                if s["mask"] == "ragged":
                    scores[:, given["lengths"][b] :] = -np.inf
                if s["mask"] == "bool":
                    scores[:, ~given["mask"][b, 0, 0]] = -np.inf
                scores[hidden] = -np.inf
                weights = _softmax(scores)
                self.result[b, h] = weights @ v
                self.scale[b, h] = weights @ np.abs(v)
            if s["mask"] == "ragged":
                self.scale[b, :, given["lengths"][b] :] = np.inf  # padding: anything finite

    def error(self, result: np.ndarray) -> float:
        """The largest error in units of eps = 2^-24 times the scale; NaN if any result is not finite, in rows that
        are not compared too."""
        if not np.isfinite(result).all():
            return float("nan")
        mine = result if self.rows is None else result[:, :, self.rows]
        return float(np.max(np.abs(mine - self.result) / self.scale) / EPS)


def _softmax(x: np.ndarray) -> np.ndarray:
    y = np.exp(x - x.max(axis=-1, keepdims=True))
    y /= y.sum(axis=-1, keepdims=True)
    return y
