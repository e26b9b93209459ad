"""Norms in place of modules that are found to compute one."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.compiler import is_compiling

from headlane import _core

from ._modules import Recognised, wants_gradient
from ._packed import NAMES
from ._state import is_plain, is_plain_traced, threads

_norm = _core.norm
_operators = torch.ops.headlane


class NormState:
    """The arithmetic of a norm: x / sqrt(mean(x**2) + eps) * (weight + offset) + bias; centred: of x - mean(x).

    names: Of the weight if there is one, and of the bias if there is one.
    eps: A number, or the name of an attribute.
    width: Of a norm without a weight, if it is of so many numbers only.
    """

    __slots__ = ("centred", "eps", "names", "offset", "ones")

    def __init__(
        self,
        centred: bool,
        names: tuple[str, ...],
        eps: str | float,
        offset: float = 0.0,
        width: int | None = None,
    ) -> None:
        self.centred = centred
        self.names = names
        self.eps = eps
        self.offset = offset
        self.ones = None if width is None else torch.ones(width, dtype=torch.float32)

    def weight(self, module: Any) -> torch.Tensor | None:
        if not self.names:
            return self.ones
        weight: torch.Tensor = module._parameters[self.names[0]]
        return weight.float() + self.offset if self.offset else weight

    def dtype_of(self, module: Any, x: torch.Tensor) -> torch.dtype | None:
        """The type that x must have; a norm without a weight takes those of the CPU."""
        if self.names:
            return module._parameters[self.names[0]].dtype
        return x.dtype if x.device.type == "cpu" else None

    def bias(self, module: Any) -> torch.Tensor | None:
        return module._parameters[self.names[1]] if len(self.names) > 1 else None

    def eps_of(self, module: Any) -> float:
        eps: float = module.__dict__[self.eps] if isinstance(self.eps, str) else self.eps
        return eps


class Norm(Recognised):
    """torch.nn.LayerNorm over one axis, or a module that was found to compute a layer norm or an RMS norm."""

    def _follows(self, name: str, value: Any) -> bool:
        state = self._headlane
        return (name == state.eps and value is not None) or (
            name in state.names and type(value) is nn.Parameter
        )

    def forward(self, *arguments: Any, **options: Any) -> torch.Tensor:
        state = self._headlane
        if len(arguments) == 1 and not options and not self.training and state is not None:
            x = arguments[0]
            dtype = state.dtype_of(self, x)
            if is_compiling():
                if dtype in NAMES and is_plain_traced(x, dtype) and not wants_gradient(self):
                    weight, bias, eps = state.weight(self), state.bias(self), state.eps_of(self)
                    if state.centred:
                        return _operators.layer_norm(x, weight, bias, eps)
                    return _operators.rms_norm(x, weight, eps)
            elif dtype in NAMES and is_plain(x, dtype) and not wants_gradient(self):
                return norm(self, x)
        return super().forward(*arguments, **options)


class NormOfInput(Norm):
    """torch.nn.LayerNorm, whose argument is called input."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
        return super().forward(input)


def norm_of_rows(x: torch.Tensor, eps: float) -> torch.Tensor:
    """The RMS norm over the last axis of a plain tensor, without a weight."""
    made: torch.Tensor = _norm(False, x, None, None, eps, None, False, None, threads())
    return made


def norm(module: Any, x: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
    """The norm of x, or of x + residual, by a Norm, of plain tensors."""
    state = module._headlane
    weight, bias, eps = state.weight(module), state.bias(module), state.eps_of(module)
    return _norm(state.centred, x, weight, bias, eps, residual, False, None, threads())
