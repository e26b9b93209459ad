"""What a module computes, found by running a copy of it on random numbers."""

from __future__ import annotations

import copy
from typing import Any, Callable

import torch
from torch import nn

from ._modules import RmsNormState

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "silu": torch.nn.functional.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "identity": lambda x: x,
}


def _is_close(y: Any, exact: torch.Tensor, scale: torch.Tensor | float = 1e-3) -> bool:
    """Whether y is equal but for roundings, those of numbers as large as `scale` too."""
    if type(y) is not torch.Tensor or y.dtype != torch.float32 or y.shape != exact.shape:
        return False
    return bool(((y.double() - exact).abs() <= 1e-5 * exact.abs() + 1e-6 * scale).all())


def activation_of(function: Callable[[torch.Tensor], Any]) -> str | None:
    """The name in ACTIVATIONS of what a function computes; None if it is something else."""
    x = torch.cat((torch.linspace(-12, 12, 97), torch.tensor([0.0, -0.0, 1e-3, -1e-3, 40.0, -40.0])))
    x = x.view(1, 1, -1)
    try:
        y = function(x.clone())
    except Exception:
        return None
    for name, activation in ACTIVATIONS.items():
        if _is_close(y, activation(x.double()), 1 + x.abs()):
            return name
    return None


def activation_of_module(module: nn.Module) -> str | None:
    if next(module.children(), None) is not None or module._parameters or module._buffers:
        return None
    try:
        probe = copy.deepcopy(module).eval()
    except Exception:
        return None
    return activation_of(probe)


def _seeded(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def rms_norm_of(module: nn.Module) -> RmsNormState | None:
    """How a module is an RMS norm; None if it is none, or differs from it for some input."""
    parameters = {name: x for name, x in module._parameters.items() if x is not None}
    if next(module.children(), None) is not None or module._buffers or len(parameters) != 1:
        return None
    name, weight = next(iter(parameters.items()))
    if weight.dim() != 1 or type(weight) is not nn.Parameter:
        return None
    try:
        probe = copy.deepcopy(module).eval().float()
    except Exception:
        return None
    width = weight.shape[0]
    random = _seeded(width)
    probe._parameters[name] = nn.Parameter(random, requires_grad=False)
    x = _seeded(4, width)
    # Of size 1; small, where eps matters; of a large mean, where a layer norm differs; large.
    inputs = [x, x * 1e-3, x + 10, x * 1e4]
    try:
        outputs = [probe(value.view(2, 2, width).clone()) for value in inputs]
    except Exception:
        return None
    known = [key for key, x in module.__dict__.items() if isinstance(x, float) and 0 <= x < 1e-2]
    for eps in (*known, torch.finfo(torch.float32).eps, 0.0):
        for offset in (0.0, 1.0):
            state = RmsNormState(name, eps, offset)
            if all(_is_rms(state, probe, value, y) for value, y in zip(inputs, outputs)):
                return state
    return None


def _is_rms(state: RmsNormState, probe: Any, x: torch.Tensor, y: Any) -> bool:
    wide = x.double().view(2, 2, -1)
    weight = probe._parameters[state.weight].double() + state.offset
    eps = probe.__dict__[state.eps] if isinstance(state.eps, str) else state.eps
    exact = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight
    return _is_close(y, exact)
