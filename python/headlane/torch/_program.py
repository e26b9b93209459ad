"""Programs whose models are optimized when they are first called: python -m headlane.torch."""

from __future__ import annotations

import argparse
import atexit
import os
import pkgutil
import runpy
import sys
import threading
import types
import weakref
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader, SourcelessFileLoader
from typing import Any

import torch
from torch import nn
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils._python_dispatch import _disable_current_modes

from ._check import STORED, check_model, check_types
from ._replacement import Replacement
from ._report import Record
from ._restore import restore
from ._state import mode_of
from ._turn import turn, turn_back
from ._weight import Hook, PackedWeight, give_back

_TIMES = 4  # how often a model is optimized


class _Inside(threading.local):
    """Whether this thread is in a call of a model: its modules are not models of their own."""

    now = False


class _Replacement(Replacement):
    """One whose packed weights are the parameters that they were, and require gradients as before."""

    def run(self) -> None:
        super().run()
        for name in self.record.frozen:
            parameter: Any = self.model.get_parameter(name)
            parameter.requires_grad_(True)
            if isinstance(parameter, PackedWeight):
                parameter.origin.requires_grad_(True)
        self.record.frozen.clear()

    def _packed(self, parameter: Any, *how: Any) -> PackedWeight:
        made = super()._packed(parameter, *how)
        if made is not parameter:
            turn(parameter, made)
            for module, name in self.places[id(parameter)]:
                module._parameters[name] = parameter
        return parameter


def _is_watched() -> bool:
    """Whether calls are recorded or transformed by what does not see the kernels."""
    return (
        torch.jit.is_tracing()
        or torch._C._len_torch_dispatch_stack() > 0  # type: ignore[attr-defined]
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch.autograd.forward_ad._current_level >= 0
    )


def _is_alone(parameter: Any) -> bool:
    """Whether nobody else has its memory, such as views and arrays, and no gradient of it is pending."""
    if type(parameter) is not nn.Parameter or parameter.device.type != "cpu" or parameter.is_sparse:
        return True
    count = torch._C._storage_Use_Count(parameter.untyped_storage()._cdata)  # type: ignore[attr-defined]
    return parameter._use_count() == 1 and count <= 2  # the second is that of this call


def _wants_gradient(model: nn.Module) -> bool:
    return torch.is_grad_enabled() and any(x.requires_grad for x in model.parameters())


class Program:
    """Optimizes each model when it is called for inference: in evaluation mode, without gradients.

    A model that is trained later, or whose weights are used for anything but its calls, is restored. It is
    optimized again at its next such call, but not for ever.
    """

    def __init__(self, weights: str | None, activations: str | None) -> None:
        self.weights = weights
        self.activations = activations
        self.lines: list[str] = []
        self._times: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()
        # Those optimized here: their packed weights, and the ids of these and of their modules.
        self._optimized: weakref.WeakKeyDictionary[nn.Module, tuple[list[PackedWeight], set[int]]]
        self._optimized = weakref.WeakKeyDictionary()
        self._inside = _Inside()
        self._lock = threading.RLock()

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
                self._train(module)
            return train(module, mode)

        def checked_reduce(module: nn.Module, protocol: Any) -> Any:
            give_back(module)  # copies and pickles are those of PyTorch's modules
            return object.__reduce_ex__(module, protocol)

        def of_module(function: Any) -> Any:
            def checked(module: Any, *arguments: Any, **options: Any) -> Any:
                give_back(module)
                return function(module, *arguments, **options)

            return checked

        def used(what: Any) -> bool:
            if inside.now and not (torch.is_grad_enabled() and getattr(what, "is_trained", False)):
                return False
            return self._give_back({id(what)}, "its weights are used outside of its calls")

        nn.Module.__call__ = checked_call  # type: ignore[method-assign]
        nn.Module.train = checked_train  # type: ignore[method-assign]
        nn.Module.__reduce_ex__ = checked_reduce  # type: ignore[method-assign]
        torch.jit.script, torch.jit.trace = of_module(torch.jit.script), of_module(torch.jit.trace)
        Hook.give_back = used

    def _train(self, model: nn.Module) -> None:
        """Restores a model, those of which it is a part or that are its parts, and one that the program has
        optimized.
        """
        if self._optimized:
            used = {id(x) for m in model.modules() for x in (m, *m._parameters.values())}
            self._give_back(used, "it is trained")
        if Record.of(model) is not None:
            self._restore(model, [], "it is trained")

    def _give_back(self, shared: set[int], why: str) -> bool:
        """Restores the models that have a module or a weight of these, and those that share some with them."""
        with self._lock:
            count = len(self.lines)
            while found := [(x, *of) for x, of in self._optimized.items() if shared & of[1]]:
                for model, weights, parts in found:
                    shared = shared | parts
                    del self._optimized[model]
                    self._restore(model, weights, why)
            return len(self.lines) > count

    def _restore(self, model: nn.Module, weights: list[PackedWeight], why: str) -> None:
        before, self._inside.now = self._inside.now, True
        try:
            with mode_of(model), temporarily_clear_interpreter_stack(), _disable_current_modes():
                for weight in weights:
                    if isinstance(weight, PackedWeight):
                        turn_back(weight)
            if Record.of(model) is not None:  # else another one of which it is a part was restored
                restore(model)
        finally:
            self._inside.now = before
        self.lines.append(f"{type(model).__name__}: restored, since {why}")

    def _prepare(self, model: nn.Module) -> None:
        record = Record.of(model)
        # torch.jit.freeze() takes the attribute `training` away.
        if getattr(model, "training", False) or _wants_gradient(model) or _is_watched():
            self._train(model)
        elif record is not None:
            if torch.is_grad_enabled() and Record.whole(model).frozen:
                self._train(model)
        elif self._times.get(model, 0) < _TIMES and all(map(_is_alone, model.parameters())):
            self._times[model] = self._times.get(model, 0) + 1
            if next(model.parameters(), None) is not None:
                self._optimize(model)

    def _optimize(self, model: nn.Module) -> None:
        try:
            check_model(model)
            check_types(model, self.weights, self.activations)
            with mode_of(model):
                _Replacement(model, self.weights, self.activations or "float32", False, []).run()
        except (ValueError, RuntimeError) as error:
            self._times[model] = _TIMES
            self.lines.append(f"{type(model).__name__}: left as it is: {error}")
            return
        weights = [x for x in model.parameters() if isinstance(getattr(x, "origin", None), nn.Parameter)]
        self._optimized[model] = weights, {id(x) for x in (*model.modules(), *weights)}
        self.lines.append(f"{type(model).__name__}:\n{Record.whole(model)}")

    def report(self) -> None:
        print(
            "headlane.torch:",
            *(self.lines or ["no model was called for inference"]),
            sep="\n",
            file=sys.stderr,
        )


def _run_script(path: str) -> None:
    """As Python does: `__main__` stays when the last line has run, for threads and functions at the exit."""
    path = os.path.abspath(path)
    module: Any = types.ModuleType("__main__")
    if path.endswith(".pyc"):
        module.__loader__ = SourcelessFileLoader("__main__", path)
        code = module.__loader__.get_code("__main__")
    else:
        module.__loader__ = SourceFileLoader("__main__", path)
        code = module.__loader__.source_to_code(module.__loader__.get_data(path), path)
    module.__file__, module.__cached__ = path, None
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


def _run(program: str, is_module: bool) -> None:
    """What Python itself does with the program, and with sys.path before."""
    run_module: Any = runpy._run_module_as_main  # type: ignore[attr-defined]
    is_safe = getattr(sys.flags, "safe_path", False)
    if is_module:
        sys.modules["__main__"] = types.ModuleType("__main__")
        return run_module(program)
    if not is_safe:
        del sys.path[0]  # the current folder, where "python -m" looks for modules
    place = os.path.abspath(program)
    if pkgutil.get_importer(place) is not None:  # a folder or an archive with a __main__
        sys.path.insert(0, place)
        sys.modules["__main__"] = types.ModuleType("__main__")
        return run_module("__main__", alter_argv=False)
    if not is_safe:
        sys.path.insert(0, os.path.dirname(os.path.realpath(program)))
    return _run_script(program)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m headlane.torch",
        usage="%(prog)s [-h] [--weights TYPE] [--activations TYPE] [-m] program ...",
        description="Runs a program; its PyTorch models are optimized when they are first called for inference. "
        "HEADLANE_TORCH=report prints at the end what was replaced.",
    )
    parser.add_argument("--weights", choices=STORED, help="how weights are stored; as they are by default")
    parser.add_argument("--activations", choices=("float32", "int8", "bfloat16"), help="see optimize()")
    parser.add_argument("-m", dest="module", action="store_true", help="the program is a module")
    parser.add_argument(
        "program",
        nargs=argparse.REMAINDER,  # one argument with those behind it, of which argparse would take away "--"
        help="a Python file, or with -m the name of a module, and its arguments",
    )
    given = parser.parse_args(arguments)
    words = given.program[1:] if given.program[:1] == ["--"] else given.program
    if not words:
        parser.error("the following arguments are required: program")
    program = Program(given.weights, given.activations)
    program.install()
    if os.environ.get("HEADLANE_TORCH") == "report":
        atexit.register(program.report)
    sys.argv = words
    _run(words[0], given.module)
