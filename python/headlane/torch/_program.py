"""Programs whose models are optimized when they are first called: python -m headlane.torch."""

from __future__ import annotations

import argparse
import atexit
import os
import runpy
import sys
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ._check import STORED
from ._optimize import optimize
from ._report import Record
from ._restore import restore


class _Inside(threading.local):
    """Whether this thread is in a call of a model: its modules are not models of their own."""

    now = False


class Program:
    """Optimizes each model when it is called for inference: in evaluation mode, without gradients.

    A model that is trained later is restored, and then left alone.
    """

    def __init__(self, weights: str | None, activations: str | None) -> None:
        self.weights = weights
        self.activations = activations
        self.lines: list[str] = []
        self._known: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._inside = _Inside()
        self._lock = threading.Lock()

    def install(self) -> None:
        """From now on, calls of modules come here first."""
        call, train, inside = nn.Module.__call__, nn.Module.train, self._inside

        def checked_call(module: nn.Module, *arguments: Any, **options: Any) -> Any:
            if inside.now or torch.compiler.is_compiling():
                return call(module, *arguments, **options)
            inside.now = True
            try:
                with self._lock:
                    self._prepare(module)
                return call(module, *arguments, **options)
            finally:
                inside.now = False

        def checked_train(module: nn.Module, mode: bool = True) -> nn.Module:
            if mode:
                self._restore(module)
            return train(module, mode)

        nn.Module.__call__ = checked_call  # type: ignore[method-assign]
        nn.Module.train = checked_train  # type: ignore[method-assign]

    def _restore(self, model: nn.Module) -> None:
        if Record.of(model) is not None:
            restore(model)
            self.lines.append(f"{type(model).__name__}: restored, since it is trained")

    def _prepare(self, model: nn.Module) -> None:
        if Record.of(model) is not None:
            if model.training or (torch.is_grad_enabled() and Record.whole(model).frozen):
                self._restore(model)
            return
        if model in self._known or model.training:
            return
        trained = torch.is_grad_enabled() and any(x.requires_grad for x in model.parameters())
        if trained:
            return
        self._known.add(model)
        if next(model.parameters(), None) is None:
            return
        try:
            optimize(model, self.weights, self.activations, inplace=True)
        except (ValueError, RuntimeError) as error:
            self.lines.append(f"{type(model).__name__}: left as it is: {error}")
            return
        self.lines.append(f"{type(model).__name__}:\n{Record.whole(model)}")

    def report(self) -> None:
        print(
            "headlane.torch:",
            *(self.lines or ["no model was called for inference"]),
            sep="\n",
            file=sys.stderr,
        )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m headlane.torch",
        description="Runs a program; its PyTorch models are optimized when they are first called for inference. "
        "HEADLANE_TORCH=report prints at the end what was replaced.",
    )
    parser.add_argument("--weights", choices=STORED, help="how weights are stored; as they are by default")
    parser.add_argument("--activations", choices=("float32", "int8", "bfloat16"), help="see optimize()")
    parser.add_argument("-m", dest="module", action="store_true", help="the program is a module")
    parser.add_argument("program", help="a Python file, or with -m the name of a module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="those of the program")
    given = parser.parse_args(arguments)
    program = Program(given.weights, given.activations)
    program.install()
    if os.environ.get("HEADLANE_TORCH") == "report":
        atexit.register(program.report)
    sys.argv = [given.program, *given.arguments]
    if given.module:
        sys.path.insert(0, os.getcwd())
        runpy.run_module(given.program, run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(given.program)))
        runpy.run_path(given.program, run_name="__main__")
