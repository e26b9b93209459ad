"""PyTorch's functions in the code of a module that is recorded."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ._nodes import NotPlain

_ACTIVATIONS: dict[Any, str] = {
    F.relu: "relu",
    torch.relu: "relu",
    torch.Tensor.relu: "relu",
    F.silu: "silu",
    F.sigmoid: "sigmoid",
    torch.sigmoid: "sigmoid",
    torch.Tensor.sigmoid: "sigmoid",
    F.tanh: "tanh",
    torch.tanh: "tanh",
    torch.Tensor.tanh: "tanh",
}


def called(func: Any, args: Any, kwargs: Any) -> Any:
    """What a function returns, one of whose arguments is a Value."""
    if func is F.dropout and kwargs.get("training", args[2] if len(args) > 2 else True) is False:
        return args[0]
    if func in (torch.chunk, torch.split):
        return getattr(args[0], func.__name__)(*args[1:], **kwargs)
    if func is torch.cat and kwargs == {"dim": -1} and len(args) == 1:
        first, *others = args[0]
        for other in others:
            first = first.joined(other)
        return first
    if func in (torch.add, torch.mul) and len(args) == 2 and not kwargs:
        return _graph_of(args).apply("add" if func is torch.add else "multiply", *args)
    if func is F.gelu and len(args) == 1:
        return _graph_of(args).apply("gelu_tanh" if kwargs.get("approximate") == "tanh" else "gelu", *args)
    if func in _ACTIVATIONS and len(args) == 1 and not any(kwargs.values()):
        return _graph_of(args).apply(_ACTIVATIONS[func], *args)
    raise NotPlain


def _graph_of(args: Any) -> Any:
    return next(x.graph for x in args if hasattr(x, "graph"))
