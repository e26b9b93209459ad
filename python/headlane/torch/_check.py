"""Checks of the arguments of optimize()."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ._report import Record

STORED = ("float32", "bfloat16", "float16", "int8", "int8_group32", "int4_group32")
STORED_FOR = {"float32": set(STORED), "int8": set(STORED[3:]), "bfloat16": {"bfloat16"}}


def check_model(model: Any) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"optimize: model is {type(model).__name__}; wanted: a torch.nn.Module")
    if any(isinstance(x, torch.jit.ScriptModule) for x in model.modules()):
        raise ValueError(
            "optimize: the model is compiled by torch.jit; optimize the modules that it was made of"
        )
    if any(nn.parameter.is_lazy(x) for x in model.parameters()):
        raise ValueError("optimize: the model has parameters without a shape; call it once first")
    if model.training:
        raise ValueError("optimize: the model is in training mode; call model.eval() first")
    if Record.of(model) is not None:
        raise ValueError("optimize: the model is optimized already; headlane.torch.restore(model) first")


def check_types(model: nn.Module, weights: str | None, activations: str | None) -> None:
    if weights is not None and weights not in STORED:
        raise ValueError(
            f"optimize: weights is {weights!r}; there are {', '.join(map(repr, STORED))} and None"
        )
    if activations not in (None, *STORED_FOR):
        raise ValueError(
            f"optimize: activations is {activations!r}; there are 'float32', 'int8', 'bfloat16' and None"
        )
    if activations in (None, "float32") or weights in STORED_FOR[activations]:
        return
    if weights is None and activations == "bfloat16":
        if any(x.dtype is torch.bfloat16 for x in model.parameters()):
            return
        raise ValueError("optimize: activations='bfloat16' needs weights of 'bfloat16'; the model has none")
    fitting = ", ".join(repr(x) for x in STORED if x in STORED_FOR[activations])
    raise ValueError(
        f"optimize: activations={activations!r} needs weights of {fitting}; they are {weights!r}"
    )
