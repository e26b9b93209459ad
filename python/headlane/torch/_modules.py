"""The classes that modules get, and their forward functions.

A module stays the object that it was, with its hooks and attributes. Its class becomes one that derives
from its own: it takes the fast path if the call is plain (see _state.py) and the module still has the
weights that were packed. Any other call goes to the code of its own class, for which weights are unpacked.
"""

from __future__ import annotations

import copy
import threading
import weakref
from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch.compiler import is_compiling

from headlane import _core

from ..torch_ops import vectors_of
from ._classes import class_of, needs_arguments
from ._packed import NAMES, Packed, dense_part
from ._state import is_plain, is_plain_traced, threads
from ._transformers import register_if_loaded
from ._weight import INDICES, PackedWeight, give_back

_linear, _activate, _operators = _core.linear, _core.activate, torch.ops.headlane


def _new(kind: type, original: type, state: Any = None) -> Any:
    """From a pickle or a copy. state: Of a module whose own state may not have it."""
    register_if_loaded()
    module = object.__new__(class_of(kind, original))
    module.__dict__["_headlane"] = state
    return module


class Replaced:
    """Mixed into the class of a module; `_headlane` is what its kind needs to know."""

    has_plans = False
    headlane_kind: type
    headlane_original: type
    _headlane: Any

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        """A call of the class, such as by slices of a Sequential, makes a module of the original one. A
        __deepcopy__ that calls cls.__new__(cls) gets one of the original class, too, and fills it.
        """
        if "headlane_original" in vars(cls):
            original = cls.headlane_original
            if not arguments and not options and needs_arguments(original):
                return original.__new__(original)
            return original(*arguments, **options)
        return super().__new__(cls)  # of a class that a parametrization derived

    def __init_subclass__(cls, **options: Any) -> None:
        """Classes of class_of() are none that the original's own __init_subclass__ is to know."""
        if "headlane_original" not in vars(cls):
            super().__init_subclass__(**options)

    @classmethod
    def adopt(cls, module: nn.Module, state: Any = None) -> None:
        module.__dict__["_headlane"] = state
        module.__class__ = class_of(cls, type(module))

    def put_back(self) -> None:
        """Makes it a module of its own class again, or of one that a parametrization derived from it."""
        kinds = type(self).__mro__
        place = next(i for i, kind in enumerate(kinds) if "headlane_original" in vars(kind))
        if place == 0:
            object.__setattr__(self, "__class__", self.headlane_original)
        for derived in kinds[:place]:
            derived.__bases__ = tuple(
                self.headlane_original if base is kinds[place] else base for base in derived.__bases__
            )
        del self.__dict__["_headlane"]

    def _replicate_for_data_parallel(self) -> Any:
        """A replica gets its parameters as attributes, and takes its own code."""
        if "headlane_original" not in vars(type(self)):  # of a class that a parametrization derived
            return super()._replicate_for_data_parallel()  # type: ignore[misc]
        module = object.__new__(self.headlane_original)
        module.__dict__ = self.__dict__
        return module._replicate_for_data_parallel()

    def __prepare_scriptable__(self) -> Any:
        """Called by torch.jit.script()."""
        raise RuntimeError("headlane.torch: torch.jit.script of an optimized model; restore(model) first")

    def _deepcopy(self, memo: Any) -> Any:
        """Where the class has a __deepcopy__ of its own; a copy that has all of the state is replaced, too."""
        if give_back(self):
            return copy.deepcopy(self, memo)
        made = super().__deepcopy__(memo)  # type: ignore[misc]
        if type(made) is self.headlane_original and "_headlane" in made.__dict__:
            made.__class__ = type(self)
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        if give_back(self):
            return self.__reduce_ex__(protocol)
        of_class = self.headlane_kind, self.headlane_original, self._headlane
        return _new, of_class, self.__getstate__()  # type: ignore[attr-defined]


# Attributes that a module has, whatever it computes.
OF_ANY = frozenset((*vars(nn.Module()), "_is_torch_compile"))


class Recognised(Replaced):
    """A module that was found to compute something. It has no state, and takes its own code, once an
    attribute was assigned or deleted, which the code may read.
    """

    def _follows(self, name: str, value: Any) -> bool:
        """Whether the state knows what an attribute changes; None if it is deleted."""
        return False

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name not in OF_ANY and self._headlane is not None and not self._follows(name, value):
            self.__dict__["_headlane"] = None

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        if self._headlane is not None and not self._follows(name, None):
            self.__dict__["_headlane"] = None


class _StateDict(threading.local):
    """The state dict that is being made, and where it has the weights that are packed: tied ones are one
    tensor.
    """

    def __init__(self) -> None:
        self.destination: Any = lambda: None
        self.names: dict[int, str] = {}


_state_dict = _StateDict()


class WithWeights(Replaced):
    def has_packed(self, packed: dict[str, tuple[Packed, ...]]) -> bool:
        """Whether parameters have what was packed, which torch.utils.swap_tensors() exchanges."""
        parameters: dict[str, Any] = self._parameters  # type: ignore[attr-defined]
        if is_compiling():
            return all(isinstance(parameters.get(name), PackedWeight) for name in packed)
        return all(getattr(parameters.get(name), "parts", None) is parts for name, parts in packed.items())

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)  # type: ignore[misc]
        if _state_dict.destination() is not destination:
            _state_dict.destination, _state_dict.names = weakref.ref(destination), {}
        for name, value in self._parameters.items():  # type: ignore[attr-defined]
            if isinstance(value, PackedWeight):
                first = _state_dict.names.setdefault(id(value), prefix + name)
                dense = value.dense() if first == prefix + name else destination[first]
                destination[prefix + name] = dense

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        """to(), float() and others: one that changes neither type nor device leaves packed weights alone; of
        others they become parameters that are not packed.
        """
        parameters: dict[str, Any] = self._parameters  # type: ignore[attr-defined]
        weights = {name: value for name, value in parameters.items() if isinstance(value, PackedWeight)}
        for name, value in weights.items():
            after = fn(torch.empty(0, dtype=value.dtype, device=value.device))
            if (after.dtype, after.device) != (value.dtype, value.device):
                if give_back(self):
                    return self._apply(fn, recurse)
                weights[name] = value.converted(fn, after)
        for name in weights:
            parameters[name] = None
        try:
            return super()._apply(fn, recurse)  # type: ignore[misc]
        finally:
            parameters.update(weights)


class WeightState:
    """A packed weight, as the forward function of its module needs it."""

    __slots__ = ("activations", "dtype", "matrix", "packed", "parts")

    def __init__(self, parameter: PackedWeight, activations: str) -> None:
        self.parts = parameter.parts
        self.packed: Packed = self.parts[0]
        self.matrix = self.packed.matrix
        self.dtype = self.packed.dtype
        self.activations = activations


def wants_gradient(module: Any) -> bool:
    """Whether a gradient of one of its own parameters is wanted, which only its own code computes."""
    return torch.is_grad_enabled() and any(
        x.is_trained if isinstance(x, PackedWeight) else x.requires_grad
        for x in module._parameters.values()
        if x is not None
    )


def refuse_gradient(module: Any) -> None:
    """In torch.compile, whose graph would not compute one.

    Raises:
        RuntimeError: a parameter requires a gradient.
    """
    if torch.is_grad_enabled() and any(x.requires_grad for x in module._parameters.values() if x is not None):
        raise RuntimeError(
            f"headlane.torch: a parameter of {type(module).__name__} requires a gradient, which a compiled model "
            "does not compute: call it within torch.no_grad(), or headlane.torch.restore(model) first"
        )


class Linear(WithWeights):
    """torch.nn.Linear and transformers' Conv1D."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = self._headlane
        if is_compiling():
            return self._traced(x)
        if self.is_packed() and not self.training and is_plain(x, state.dtype) and not wants_gradient(self):
            bias = self._parameters["bias"]
            return _linear(x, state.matrix, bias, None, None, None, state.activations, threads())
        return super().forward(x)

    def is_packed(self) -> bool:
        """Whether its weight is that which was packed, and its bias no attribute, as by pruning and others."""
        parameters = self._parameters
        weight = parameters.get("weight")
        return getattr(weight, "parts", None) is self._headlane.parts and "bias" in parameters

    def _traced(self, x: torch.Tensor) -> torch.Tensor:
        state, packed = self._headlane, self._headlane.packed
        if not self.has_packed({"weight": state.parts}):
            return super().forward(x)
        refuse_gradient(self)
        if not self.training and is_plain_traced(x, state.dtype):
            return _operators.linear(x, packed.packed, packed.key, self.bias, state.activations)
        weight = dense_part(packed)
        return F.linear(x, weight if packed.transposed else weight.T, self.bias)


class LinearOfInput(Linear):
    """torch.nn.Linear, whose argument is called input."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
        return super().forward(input)


def product(
    module: Any, x: torch.Tensor, activation: str | None = None, residual: Any = None, out: Any = None
) -> torch.Tensor:
    """activation(x @ weight.T + bias) + residual of a Linear, of a plain x."""
    state = module._headlane
    bias = module._parameters["bias"]
    return _linear(x, state.matrix, bias, activation, residual, out, state.activations, threads())


class Embedding(WithWeights):
    """torch.nn.Embedding whose weight is that of an output layer, too."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
        state, packed = self._headlane, self._headlane.packed
        if not self.has_packed({"weight": state.parts}):
            return super().forward(input)
        if is_compiling():
            refuse_gradient(self)
        elif wants_gradient(self) or not any(is_plain(input, dtype) for dtype in INDICES):
            return super().forward(input)
        if packed.original is not None:
            return F.embedding(input, packed.original, self.padding_idx)
        if is_compiling():
            return _operators.embedding(input, packed.packed, packed.key, state.dtype)
        return vectors_of(state.matrix, input, state.dtype)


class Activation(Recognised):
    """A module without parameters that was found to compute an activation; `_headlane` is its name."""

    def forward(self, *arguments: Any, **options: Any) -> torch.Tensor:
        if len(arguments) == 1 and not options and not self.training and self._headlane is not None:
            x = arguments[0]
            dtype = x.dtype
            if dtype in NAMES:
                if is_compiling():
                    if is_plain_traced(x, dtype):
                        return _operators.activation(x, self._headlane)
                elif is_plain(x, dtype):
                    return _activate(self._headlane, self._headlane, x, torch.empty_like(x), threads())
        return super().forward(*arguments, **options)
