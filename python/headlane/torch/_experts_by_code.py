"""Experts of mixtures whose gate is code of their own: their products and activations are headlane's."""

from __future__ import annotations

from itertools import groupby
from typing import Any, Callable

import torch
from torch import nn

from ._calls import ACTIVATIONS, Intercept
from ._experts import AnyExperts
from ._modules import _linear
from ._packed import Packed
from ._state import threads

Activate = Callable[[torch.Tensor], torch.Tensor]
Multiply = Callable[[str, torch.Tensor, "list[tuple[int, int]]"], torch.Tensor]


def weights_of(module: nn.Module) -> tuple[str, str] | None:
    """The names of the two weights of a module that says what its experts are, as those of transformers do."""
    if any(name not in module.__dict__ for name in ("has_gate", "has_bias", "is_transposed")):
        return None
    names = ("gate_up_proj" if module.has_gate else "up_proj"), "down_proj"
    weights = [module._parameters.get(name) for name in names]
    return None if any(x is None or x.dim() != 3 for x in weights) else names


def run(
    module: Any,
    names: tuple[str, str],
    x: torch.Tensor,
    index: torch.Tensor,
    factors: torch.Tensor,
    multiply: Multiply,
    activate: Activate,
) -> torch.Tensor:
    """The results for tokens x [tokens, width] of the experts in their rows of index, times their factors, added
    in the order of the experts' numbers. The number of experts stands for none. names: Of the weights.
    multiply(name, rows, groups): rows by a weight, groups of them by that of an expert. activate(rows): between
    the two products.
    """
    count = len(module._parameters[names[1]])
    numbers = index.reshape(-1).tolist()  # lists: PyTorch's sort and unique take longer for a few
    wrong = next((number for number in numbers if not 0 <= number <= count), None)
    if wrong is not None:
        raise ValueError(f"experts: an index is {wrong}, there are {count} experts")
    places = [i for i in sorted(range(len(numbers)), key=numbers.__getitem__) if numbers[i] != count]
    groups = [(number, len(list(same))) for number, same in groupby(numbers[i] for i in places)]
    order = torch.tensor(places, dtype=torch.int64, device=index.device)
    tokens = order // max(1, index.shape[1])
    inner = activate(multiply(names[0], x[tokens], groups))
    result = multiply(names[1], inner.to(x.dtype), groups)
    if getattr(module, "has_post_expert_norm", False):
        result = module.post_expert_norm(result)
    result = result.float() * factors.reshape(-1)[order].float().unsqueeze(1)
    return result.new_zeros(x.shape).index_add_(0, tokens, result).to(x.dtype)


def gate_of(module: Any) -> Activate:
    return module._apply_gate if module.has_gate else module.act_fn


def dense(module: Any) -> Multiply:
    """By the weights of a module as they are."""

    def multiply(name: str, rows: torch.Tensor, groups: list[tuple[int, int]]) -> torch.Tensor:
        weight, bias, made = module._parameters[name], bias_of(module, name), []
        for (expert, _), x in zip(groups, rows.split([size for _, size in groups])):
            product = x @ (weight[expert] if module.is_transposed else weight[expert].T)
            made.append(product if bias is None else product + bias[expert])
        return torch.cat(made)

    return multiply


def bias_of(module: nn.Module, name: str) -> torch.Tensor | None:
    return module._parameters[f"{name}_bias"] if module.has_bias else None


class ByCodeState:
    """The packed weights of experts, by their names: the first one, and that of the results."""

    __slots__ = ("activations", "dtype", "matrices", "names", "packed")

    def __init__(self, packed: dict[str, tuple[Packed, ...]], activations: str) -> None:
        self.packed = packed
        self.activations = activations
        self.names = tuple(packed)
        self.matrices = {name: [part.matrix for part in parts] for name, parts in packed.items()}
        self.dtype = packed[self.names[0]][0].dtype

    def __reduce__(self) -> Any:
        return ByCodeState, (self.packed, self.activations)


class ExpertsByCode(AnyExperts):
    """Those that were found to compute run()."""

    def computed(self, x: torch.Tensor, index: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
        return run(self, self._headlane.names, x, index, factors, self._multiply, self._activate)

    def _activate(self, rows: torch.Tensor) -> torch.Tensor:
        with Intercept(ACTIVATIONS):
            return gate_of(self)(rows)

    def _multiply(self, name: str, rows: torch.Tensor, groups: list[tuple[int, int]]) -> torch.Tensor:
        state, bias, count = self._headlane, bias_of(self, name), threads()  # type: ignore[arg-type]
        matrices = state.matrices[name]
        out = rows.new_empty(len(rows), matrices[0].columns)
        sizes = [size for _, size in groups]
        for (expert, _), x, y in zip(groups, rows.split(sizes), out.split(sizes)):
            own = None if bias is None else bias[expert]
            _linear(x, matrices[expert], own, None, None, y, state.activations, count)
        return out
