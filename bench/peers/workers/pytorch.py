"""Runs one contender on PyTorch models: `python -m peers.workers.pytorch KEY THREADS`. Speaks the protocol of
operations.py, where prepare takes a model's name, its folder and a file of inputs, and two more commands: optimise,
which tells the time and the memory that changing a model takes, and call, the time of one small linear layer."""

from __future__ import annotations

import gc
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from ..cases.pytorch import SHAPES, Shape
from ..routes import pytorch, pytorch_models
from ..routes.job import Job
from . import operations
from .models import seconds

ROUTES = {
    "eager": pytorch.Eager,
    "eager-bfloat16": pytorch.EagerBfloat16,
    "prepacked": pytorch.Prepacked,
    "frozen": pytorch.Frozen,
    "compiled": pytorch.Compiled,
    "dynamic-int8": pytorch.DynamicInt8,
    "headlane": pytorch.Headlane,
    "headlane-weights-bfloat16": partial(pytorch.Headlane, weights="bfloat16"),
    "headlane-weights-int8": partial(pytorch.Headlane, weights="int8"),
    "headlane-int8": partial(pytorch.Headlane, weights="int8", activations="int8"),
    "headlane-bfloat16": partial(pytorch.Headlane, weights="bfloat16", activations="bfloat16"),
    "headlane-model-bfloat16": partial(pytorch.HeadlaneBfloat16, weights="bfloat16", activations="bfloat16"),
    "headlane-weights-int4": partial(pytorch.Headlane, weights="int4_group32"),
}
CALLS = 20000
SMALL = 8  # rows and columns of the layer that is called


class PytorchWorker(operations.Worker):
    def answer(self, command: str, arguments: dict[str, str]) -> str:
        if command == "prepare":
            self.job = None
            self.job, about = self.route.job(
                SHAPES[arguments["model"]],
                Path(arguments["folder"]),
                arguments["op"],
                np.load(arguments["input"]),
                int(arguments["rows"]),
            )
            return told(about)
        if command == "optimise":
            return told(self.optimise(arguments["model"], arguments.get("folder")))
        if command == "call":
            return f"{self.call(int(arguments.get('calls', CALLS))):.9g}"
        return super().answer(command, arguments)

    def optimise(self, name: str, folder: str | None) -> dict[str, float]:
        """Bytes that are resident beyond those before the model: in eager mode, which computes once, and optimised;
        each now and at most. Without a folder the model is built, else its weights are in the mapped file. A small
        model goes before, so that what libraries load and keep does not count."""
        import torch

        shape, ids = SHAPES[name], torch.arange(16)[None]
        small = pytorch_models.build(small_of(shape))
        small(input_ids=ids)
        self.route.change(small)
        before = operations.resident_from_now()
        model = (
            pytorch_models.load(shape, Path(folder), mapped=True) if folder else pytorch_models.build(shape)
        )
        model(input_ids=ids)
        made = {"eager": operations.memory("VmRSS"), "eager_peak": operations.memory("VmHWM")}
        operations.resident_from_now()
        took, model = seconds(partial(self.route.change, model))
        gc.collect()
        made |= {"optimised": operations.memory("VmRSS"), "peak": operations.memory("VmHWM")}
        return {"seconds": took, **{key: value - before for key, value in made.items()}}

    def call(self, calls: int) -> float:
        """Seconds of a call of a linear layer so small that nothing but the call takes time."""
        import torch

        model = torch.nn.Sequential(torch.nn.Linear(SMALL, SMALL)).eval()
        layer, x = self.route.change(model)[0], torch.ones(1, SMALL)
        return operations.seconds_of(Job(partial(layer, x), np.asarray), calls // 10, calls) / calls


def small_of(shape: Shape) -> Shape:
    return replace(shape, layers=1, d_model=32 * shape.heads, d_ff=64, vocabulary=64)


def told(numbers: dict[str, float]) -> str:
    return " ".join(f"{name}={value:.9g}" for name, value in numbers.items())


if __name__ == "__main__":
    operations.end_with_parent()
    PytorchWorker(ROUTES[sys.argv[1]](int(sys.argv[2]))).serve()
