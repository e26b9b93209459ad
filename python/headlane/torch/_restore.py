"""restore() and report()."""

from __future__ import annotations

from typing import TextIO

from torch import nn

from ._modules import Replaced
from ._report import Record
from ._state import mode_of
from ._transformers import restore_attention
from ._weight import PackedWeight


def _origin(weight: PackedWeight) -> nn.Parameter:
    """The parameter that was packed: itself, if somebody has kept it, such as an optimizer."""
    parameter = weight.origin() if weight.origin is not None else None
    return nn.Parameter(weight.dense(), requires_grad=False) if parameter is None else parameter


def restore(model: nn.Module) -> None:
    """Undoes optimize(): modules have their classes again, and their weights, bit for bit. Parts of the
    model that were optimized by themselves are restored, too.

    Raises:
        ValueError: it was not optimized, or weights were rounded and released.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"restore: model is {type(model).__name__}; wanted: a torch.nn.Module")
    if Record.of(model) is None:
        raise ValueError("restore: the model is not one that optimize() returned")
    packed = {
        id(x): x for m in model.modules() for x in m._parameters.values() if isinstance(x, PackedWeight)
    }
    for weight in packed.values():
        for part in weight.parts:
            if part.rounds and part.original is None:
                raise ValueError(
                    f"restore: the weights were rounded to {part.matrix.dtype} and released; load the model again"
                )
    with mode_of(model):
        _put_back(model, {key: _origin(weight) for key, weight in packed.items()})
    restore_attention(model, Record.whole(model).configurations)
    Record.remove(model)


def _put_back(model: nn.Module, dense: dict[int, nn.Parameter]) -> None:
    """Classes, parameters instead of packed weights, and whether they require gradients."""
    for module in model.modules():
        for name, value in module._parameters.items():
            if isinstance(value, PackedWeight):
                module._parameters[name] = dense[id(value)]
        if isinstance(module, Replaced):
            module.put_back()
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for name in Record.whole(model).frozen:
        if name in parameters:
            parameters[name].requires_grad_(True)


def report(model: nn.Module, file: TextIO | None = None) -> None:
    """Prints what optimize() replaced, what it did not and why, and the memory before and after."""
    if not isinstance(model, nn.Module) or Record.of(model) is None:
        raise ValueError("report: the model is not one that optimize() returned")
    print(Record.whole(model), file=file)
