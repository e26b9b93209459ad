"""When the kernels may be used: what a call must be like to have the result that PyTorch's own code has."""

from __future__ import annotations

from typing import Any

import torch

threads = torch.get_num_threads
_is_grad_enabled = torch.is_grad_enabled
_is_autocast_enabled = torch.is_autocast_enabled
# How many modes see the operators of a call, such as make_fx and counters of operations.
_watchers = torch._C._len_torch_dispatch_stack  # type: ignore[attr-defined]
_PLAIN = (torch.Tensor, torch.nn.Parameter)


def mode_of(model: torch.nn.Module) -> torch.inference_mode:
    """Where tensors of the model are made: in inference mode they could never be trained."""
    return torch.inference_mode(any(x.is_inference() for x in model.parameters()))


def is_plain(x: Any, dtype: torch.dtype) -> bool:
    """Whether x is a tensor of this type on the CPU, not nested, no negative view, without a gradient, outside of
    autocast, and nobody watches.

    Tensors that are traced or wrapped are refused by the functions.
    """
    return (
        type(x) in _PLAIN
        and x.dtype is dtype
        and not (x.requires_grad and _is_grad_enabled())
        and x.is_cpu
        and not x.is_nested
        and not x.is_neg()
        and not _is_autocast_enabled("cpu")
        and not _watchers()
    )


def is_plain_traced(x: Any, dtype: torch.dtype) -> bool:
    """The same for a tensor of torch.compile or torch.export."""
    return (
        x.dtype is dtype
        and x.device.type == "cpu"
        and not (x.requires_grad and torch.is_grad_enabled())
        and not torch.is_autocast_enabled("cpu")
    )
