"""Measures PyTorch models, in the rounds of operations.py: results are held against those of eager mode in float32."""

from __future__ import annotations

import os
import statistics
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from ..cases.pytorch import inputs
from ..contenders.contender import Contender
from ..contenders.pytorch import REFERENCE
from ..workers.process import Failure, Worker
from .models import TIMEOUT, ModelBench, largest_error, require_close, smallest_cosine
from .operations import Entry, Probe

CALL_ROUNDS = 5


class PytorchBench(ModelBench):
    """The error is the distance from the states or logits of the reference: of tokens, up to the first that is
    another, since what follows has another past."""

    maker = "peers.routes.pytorch_models"
    truths, truth_threads = REFERENCE, len(os.sched_getaffinity(0))

    def folder_of(self, model: str) -> Path:
        return self.made_folder(model)

    def _write_inputs(self) -> dict[str, Path]:
        path = self.folder / "input.npy"
        np.save(path, inputs(self.case))
        return {"input": path}

    def _prepare(self, worker: Worker) -> str:
        shape = self.case.shape
        rows = shape["batch"] * (1 if self.case.op == "generate" else shape["length"])
        told = worker.ask(
            "prepare", model=shape["model"], folder=self.model, op=self.case.op, rows=rows, **self.inputs
        )
        self.prepared = numbers(told)
        return told

    def _kind(self, worker: Worker) -> type:
        return np.float32

    def _checked(self, worker: Worker) -> Entry:
        if self.reference is None:
            raise Failure("there is no reference")
        took, made = self._result(worker)
        if made.shape != self.reference.shape:
            raise Failure(f"wrong: {made.shape[1]} numbers for an input, not {self.reference.shape[1]}")
        x, y = self._vectors(made)
        error = largest_error(x, y)
        cosine = smallest_cosine(x, y) if worker.contender.rounded else None
        require_close(error, cosine)
        entry = Entry(worker, error, took=took, cosine=cosine)
        entry.more = {"prepared": self.prepared["seconds"]}
        if self.case.op == "generate":
            entry.more |= {"other": self.other_tokens(made), "read": self.read()}
        return entry

    def _rows(self, made: np.ndarray) -> np.ndarray:
        """[batch, rows, width], and for tokens one number more."""
        return made.reshape(len(made), self.case.shape["rows"], -1)

    def _vectors(self, made: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x, y = self._rows(made), self._rows(self.reference)
        if self.case.op == "generate":
            same = np.cumprod(x[:, :-1, -1] == y[:, :-1, -1], axis=1).astype(bool)
            same = np.concatenate([np.ones((len(x), 1), bool), same], axis=1)  # all tokens before are
            return x[same][:, :-1], y[same][:, :-1]
        width = self.case.shape["width"]
        return x.reshape(-1, width), y.reshape(-1, width)

    def other_tokens(self, made: np.ndarray) -> float:
        """Their share."""
        return float(np.mean(self._rows(made)[..., -1] != self._rows(self.reference)[..., -1]))

    def read(self) -> int:
        """Bytes that all steps read at least: the matrices as they are stored, and the cache."""
        shape, about = self.case.shape, self.prepared
        return int(shape["tokens"] * about["stored"] + shape["cached"] * about["cached"])

    def _limit(self, entry: Entry, probe: Probe) -> tuple[str, float]:
        if "read" in entry.more:
            return "", entry.more["read"]
        return super()._limit(entry, probe)

    def optimise(
        self, contender: Contender, threads: int, model: str, loaded: bool, rounds: int
    ) -> list[dict]:
        """What optimising a model takes, each round in a process of its own: the median of the seconds, and the
        bytes of the first one."""
        arguments = {"model": model, **({"folder": self.folder_of(model)} if loaded else {})}
        made = []
        for _ in range(rounds):
            with ExitStack() as stack:
                try:
                    worker = Worker(contender, threads, TIMEOUT)
                    stack.callback(worker.end)
                    made.append(numbers(worker.ask("optimise", **arguments)))
                except Failure as failure:
                    self.fail(contender.title, str(failure))
                    return []
        about = {"contender": contender.name, "threads": threads, "model": model, "loaded": loaded}
        return [{**about, **made[0], "seconds": statistics.median(each["seconds"] for each in made)}]

    def call_times(self, workers: list[Worker]) -> list[dict]:
        """Medians of rounds in which each worker in turn calls a small layer."""
        taken: dict[int, list[float]] = {}
        for _ in range(CALL_ROUNDS):
            for i, worker in enumerate(workers):
                try:
                    taken.setdefault(i, []).append(float(worker.ask("call")))
                except Failure as failure:
                    self.fail(worker.contender.title, str(failure))
        return [
            {
                "contender": workers[i].contender.name,
                "threads": workers[i].threads,
                "seconds": statistics.median(times),
            }
            for i, times in taken.items()
            if times
        ]


def numbers(told: str) -> dict[str, float]:
    return {name: float(value) for name, value in (word.split("=") for word in told.split())}
