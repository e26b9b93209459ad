"""The experts of a mixture: networks of which each token takes some."""

from __future__ import annotations

import dis
import inspect
from typing import Any

import torch
from torch import nn
from torch.compiler import is_compiling

from headlane import _core

from ._modules import Recognised, WithWeights, refuse_gradient, wants_gradient
from ._packed import NAMES, Packed
from ._state import is_plain, is_plain_traced, threads
from ._untouched import is_untouched

# The weights [experts, 2 * hidden, width], of which the first half is the gates', and [experts,
# width, hidden].
EXPERTS = ("gate_up_proj", "down_proj")


class AnyExperts(WithWeights, Recognised):
    """A module of transformers with the weights of all experts, which is called with tokens x [tokens, width],
    the numbers of the experts that each takes, and the factors of their results, [tokens, taken]. Its state has
    what is `packed` by name, and their `dtype`.
    """

    def computed(self, x: torch.Tensor, index: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def traced(self, x: torch.Tensor, index: torch.Tensor, factors: torch.Tensor) -> Any:
        """The same by operators, for torch.compile; NotImplemented if there are none."""
        return NotImplemented

    def has_own_parts(self) -> bool:
        """Whether the modules inside that are not called are those that were found."""
        return True

    def _follows(self, name: str, value: Any) -> bool:
        """Weights, at which each call looks, also if they are parametrized for a while."""
        return name in (*self._headlane.packed, "parametrizations", "__class__")

    def forward(self, *arguments: Any, **options: Any) -> torch.Tensor:
        state = self._headlane
        is_known = state is not None and not self.training and self.has_own_parts()  # type: ignore[attr-defined]
        if len(arguments) == 3 and not options and is_known:
            x, index, factors = arguments
            plain = is_plain_traced if is_compiling() else is_plain
            if (
                plain(x, state.dtype)
                and plain(index, torch.int64)
                and factors.dtype in NAMES
                and plain(factors, factors.dtype)
                and x.dim() == 2
                and self.has_packed(state.packed)
            ):
                if is_compiling():
                    refuse_gradient(self)
                    made = self.traced(x, index, factors)
                    if made is not NotImplemented:
                        return made
                elif not wants_gradient(self):
                    return self.computed(x, index, factors)
        return super().forward(*arguments, **options)  # type: ignore[misc]


def is_mixture(module: nn.Module) -> bool:
    """Whether its own code calls experts, those that remain PyTorch's too."""
    return any(
        isinstance(x, AnyExperts) or _has_experts(x) for x in module._modules.values() if x is not None
    )


def _has_experts(module: nn.Module) -> bool:
    weights = [module._parameters.get(name) for name in EXPERTS]
    return all(x is not None and x.dim() == 3 for x in weights)


def results_of(function: Any) -> int:
    """How many results the code of a function returns in a tuple; 0 if it returns other things, too."""
    code = list(dis.get_instructions(inspect.unwrap(function)))
    returned = {
        before.argval if before.opname == "BUILD_TUPLE" else 0
        for before, one in zip(code, code[1:])
        if one.opname.startswith("RETURN")
    }
    return int(returned.pop()) if len(returned) == 1 else 0


class ExpertsState:
    """The packed weights of experts, as their forward function needs them.

    gate: The module of the activation.
    """

    __slots__ = ("activation", "activations", "dtype", "experts", "gate", "packed")

    def __init__(
        self, packed: dict[str, tuple[Packed, ...]], activation: str, activations: str, gate: nn.Module
    ) -> None:
        self.packed = packed
        self.gate = gate
        self.activation = activation
        self.activations = activations
        gate, up, down = ([x.matrix for x in parts] for parts in self.parts())
        self.dtype = packed[EXPERTS[0]][0].dtype
        self.experts = _core.Experts(gate, up, down, activation, activations)

    def parts(self) -> tuple[Any, Any, Any]:
        """Of the gates, of what they multiply, and of what follows, for each expert."""
        gate_up, down = (self.packed[name] for name in EXPERTS)
        return gate_up[::2], gate_up[1::2], down

    def __reduce__(self) -> Any:
        return ExpertsState, (self.packed, self.activation, self.activations, self.gate)


class Experts(AnyExperts):
    """Those that were found to compute activation(gate) * up, in one call."""

    def has_own_parts(self) -> bool:
        state = self._headlane
        gate = state.gate
        return (
            list(self._modules.values()) == [gate]  # type: ignore[attr-defined]
            and is_untouched(gate)
            and gate._headlane == state.activation
        )

    def computed(self, x: torch.Tensor, index: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
        return self._headlane.experts.forward(x, index, factors, threads())

    def traced(self, x: torch.Tensor, index: torch.Tensor, factors: torch.Tensor) -> Any:
        state = self._headlane
        gate, up, down = state.parts()
        packed = [part.packed for part in (*gate, *up, *down)]
        return torch.ops.headlane.experts(
            x, index, factors, packed, gate[0].key, down[0].key, state.activation, state.activations
        )
