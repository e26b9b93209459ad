"""RMS norms whose result is multiplied by an activation of a gate, as after linear attention, or whose argument is,
as after Mamba-2.
"""

from __future__ import annotations

import copy
import inspect
from typing import Any

import torch
from torch import nn
from torch.compiler import is_compiling

from headlane import _core

from ._modules import Recognised, wants_gradient
from ._norms import NormState, norm, norm_of_rows
from ._packed import NAMES
from ._state import is_plain, threads

_ACTIVATIONS = {
    "silu": lambda x: x * torch.sigmoid(x),
    "sigmoid": torch.sigmoid,
}


class GatedNormState(NormState):
    """norm(x) * activation(gate); if gate_first, norm(x * activation(gate)).

    width: How many numbers have a norm of their own.
    """

    __slots__ = ("activation", "gate_first", "width")

    def __init__(
        self, names: tuple[str, ...], eps: str, activation: str, width: int, gate_first: bool = False
    ) -> None:
        super().__init__(False, names, eps)
        self.activation = activation
        self.width = width
        self.gate_first = gate_first


class GatedNorm(Recognised):
    """A module that was found to compute such a norm of two tensors."""

    def _follows(self, name: str, value: Any) -> bool:
        state = self._headlane
        if name == state.eps:
            return isinstance(value, float)
        return name in state.names and type(value) is nn.Parameter

    def forward(self, *arguments: Any, **options: Any) -> torch.Tensor:
        state = self._headlane
        if (
            len(arguments) == 2
            and not options
            and state is not None
            and not (self.training or is_compiling())
        ):
            x, gate = arguments
            dtype = state.dtype_of(self, x)
            if (
                dtype in NAMES
                and is_plain(x, dtype)
                and is_plain(gate, gate.dtype)
                and gate.dtype in NAMES
                and gate.shape == x.shape
                and not wants_gradient(self)
            ):
                wide = gate.float()
                factor = _core.activate(
                    state.activation, state.activation, wide, torch.empty_like(wide), threads()
                )
                if not state.gate_first:
                    return (norm(self, x) * factor).to(dtype)
                groups = (x.float() * factor).unflatten(-1, (-1, state.width))
                normed = norm_of_rows(groups, state.eps_of(self)).flatten(-2)
                return (normed * state.weight(self).float()).to(dtype)
        return super().forward(*arguments, **options)


def gated_norm_of(module: nn.Module) -> GatedNormState | None:
    """How a module is such a norm; None if it is none, or differs from it for some input."""
    parameters = {name: x for name, x in module._parameters.items() if x is not None}
    if module._modules or module._buffers or len(parameters) != 1:
        return None
    if len(inspect.signature(type(module).forward).parameters) != 3:  # with self
        return None
    ((name, weight),) = parameters.items()
    if type(weight) is not nn.Parameter or weight.dim() != 1 or weight.dtype not in NAMES:
        return None
    random = torch.Generator().manual_seed(1)
    x, gate = torch.randn(2, 6, len(weight), generator=random, dtype=torch.float32)
    # Rows of size 1; small ones, where eps matters; of a large mean, where a layer norm differs.
    inputs = torch.stack([x, x * 1e-3, x * 1e-6, x + 10, x * 1e4])
    gates = torch.stack([gate, 3 * gate, gate, 8 * gate, -gate])
    try:
        probe: Any = copy.deepcopy(module).eval()
        if probe(x.to(weight.dtype), gate.to(weight.dtype)).dtype is not weight.dtype:
            return None
        probe.float()
        probe._parameters[name] = nn.Parameter(x[0], requires_grad=False)
        before = dict(vars(probe))
        with torch.no_grad():
            given = inputs.clone(), gates.clone()
            results = [probe(*given), *map(probe, *given)]
    except Exception:
        return None
    if vars(probe) != before or not (given[0].equal(inputs) and given[1].equal(gates)):
        return None
    widths = {len(weight), *_divisors(module, len(weight))}
    for eps, value in vars(module).items():
        if isinstance(value, float) and 0 <= value < 1e-2:
            for activation, function in _ACTIVATIONS.items():
                exact = _normed(inputs.double(), value, len(weight)) * x[0] * function(gates.double())
                if _agree(results, exact):
                    return GatedNormState((name,), eps, activation, len(weight))
                for width in widths:
                    exact = _normed(inputs.double() * function(gates.double()), value, width) * x[0]
                    if _agree(results, exact):
                        return GatedNormState((name,), eps, activation, width, gate_first=True)
    return None


def _divisors(module: nn.Module, size: int) -> list[int]:
    """Sizes of groups of so many numbers that a module may have: its attributes name them, or how many there are."""
    named = [x for x in vars(module).values() if type(x) is int and 0 < x <= size and size % x == 0]
    return named + [size // x for x in named]


def _normed(x: torch.Tensor, eps: float, width: int) -> torch.Tensor:
    groups = x.unflatten(-1, (-1, width))
    return (groups * torch.rsqrt(groups.square().mean(-1, keepdim=True) + eps)).flatten(-2)


def _agree(results: list[Any], exact: torch.Tensor) -> bool:
    """Whether these are it, of all rows and of each."""
    return all(
        isinstance(y, torch.Tensor) and torch.allclose(y.double(), z, rtol=1e-5, atol=1e-30)
        for y, z in zip(results, [exact, *exact], strict=True)
    )
