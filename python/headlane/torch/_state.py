"""When the kernels may be used: what a call must be like to have the result that PyTorch's own code has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.compiler import is_compiling

threads = torch.get_num_threads
_is_grad_enabled = torch.is_grad_enabled
_is_autocast_enabled = torch.is_autocast_enabled
# How many modes see the operators of a call, such as make_fx and counters of operations.
_watchers = torch._C._len_torch_dispatch_stack  # type: ignore[attr-defined]
_transforms = torch._C._functorch.peek_interpreter_stack
_PLAIN = (torch.Tensor, torch.nn.Parameter)

AXES = 8  # at most


@contextmanager
def mode_of(model: torch.nn.Module) -> Iterator[None]:
    """Where tensors of the model are made: in inference mode they could never be trained. Others are on the CPU,
    whatever the default device.
    """
    with torch.inference_mode(any(x.is_inference() for x in model.parameters())), torch.device("cpu"):
        yield


def has_tangents() -> bool:
    """Whether there is forward-mode differentiation, such as by jvp."""
    return forward_ad._current_level >= 0 and not is_compiling()


def is_plain(x: Any, dtype: torch.dtype) -> bool:
    """Whether x is a tensor that the kernels take, of this type, and nothing is to happen beside the call."""
    return is_taken(x, dtype) and not is_watched()


def is_taken(x: Any, dtype: torch.dtype) -> bool:
    """Whether x is a tensor of this type on the CPU, of so many axes as the kernels take, not sparse, not nested,
    no negative view, without a gradient.
    """
    return (
        type(x) in _PLAIN
        and x.dtype is dtype
        and not (x.requires_grad and _is_grad_enabled())
        and x.is_cpu
        and x.layout is torch.strided
        and not x.is_nested
        and not x.is_neg()
        and x.dim() <= AXES
    )


def is_watched() -> bool:
    """Whether there is autocast, a transform such as vmap and jvp, or a mode that sees all operators."""
    return (
        _is_autocast_enabled("cpu")
        or _watchers() > 0
        or _transforms() is not None
        or forward_ad._current_level >= 0
    )


def is_plain_traced(x: Any, dtype: torch.dtype) -> bool:
    """The same for a tensor of torch.compile or torch.export."""
    return (
        x.dtype is dtype
        and x.device.type == "cpu"
        and x.dim() <= AXES
        and not (x.requires_grad and torch.is_grad_enabled())
        and not torch.is_autocast_enabled("cpu")
    )
