"""The experts of a mixture: networks of which each token takes some."""

from __future__ import annotations

from typing import Any

import torch
from torch.compiler import is_compiling

from headlane import _core

from ._modules import WithWeights
from ._state import is_plain, is_plain_traced, threads
from ._weight import PackedWeight

# The weights [experts, 2 * hidden, width], of which the first half is the gates', and [experts,
# width, hidden].
EXPERTS = ("gate_up_proj", "down_proj")


class ExpertsState:
    """The packed weights of experts, as their forward function needs them."""

    __slots__ = ("activation", "activations", "down", "dtype", "experts", "gate_up")

    def __init__(self, gate_up: PackedWeight, down: PackedWeight, activation: str, activations: str) -> None:
        self.gate_up = gate_up
        self.down = down
        self.activation = activation
        self.activations = activations
        self.dtype = down.parts[0].dtype
        gate, up, of_down = ([x.matrix for x in parts] for parts in self.parts())
        known = None if activation == "identity" else activation
        self.experts = _core.Experts(gate, up, of_down, known, activations)

    def parts(self) -> tuple[Any, Any, Any]:
        """Of the gates, of what they multiply, and of what follows, for each expert."""
        return self.gate_up.parts[::2], self.gate_up.parts[1::2], self.down.parts

    def __reduce__(self) -> Any:
        return ExpertsState, (self.gate_up, self.down, self.activation, self.activations)


class Experts(WithWeights):
    """A module of transformers that was found to compute gated experts of the tokens x [tokens, width], for
    the numbers of those that each token takes, and the factors of their results, [tokens, taken].
    """

    def forward(self, *arguments: Any, **options: Any) -> torch.Tensor:
        state, parameters = self._headlane, self._parameters  # type: ignore[attr-defined]
        if len(arguments) == 3 and not options and not self.training:  # type: ignore[attr-defined]
            x, index, factors = arguments
            if is_compiling():
                if (
                    x.dim() == 2
                    and is_plain_traced(x, state.dtype)
                    and is_plain_traced(factors, factors.dtype)
                ):
                    return self._traced(x, index, factors)
            elif (
                parameters.get("gate_up_proj") is state.gate_up
                and parameters.get("down_proj") is state.down
                and is_plain(x, state.dtype)
                and is_plain(factors, factors.dtype)
                and x.dim() == 2
            ):
                return state.experts.forward(x, index, factors, threads())
        return super().forward(*arguments, **options)  # type: ignore[misc]

    def _traced(self, x: torch.Tensor, index: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
        state = self._headlane
        gate, up, down = state.parts()
        packed = [part.packed for part in (*gate, *up, *down)]
        return torch.ops.headlane.experts(
            x, index, factors, packed, gate[0].key, down[0].key, state.activation, state.activations
        )
