"""Parameters that become packed weights and parameters again, and stay the same objects: an optimizer may
have them at any time.
"""

from __future__ import annotations

from typing import Any

import torch

from ._weight import PackedWeight


def _swap(one: Any, other: Any) -> None:
    """As torch.utils.swap_tensors(), which refuses tensors that somebody has weak references to."""
    one.__class__, other.__class__ = other.__class__, one.__class__
    one.__dict__, other.__dict__ = other.__dict__, one.__dict__
    torch._C._swap_tensor_impl(one, other)  # type: ignore[attr-defined]


def turn(parameter: Any, packed: Any) -> None:
    """Makes a parameter the packed weight, with its attributes. What was the packed weight is then what the
    parameter was, with its hooks and gradient, but without its memory.
    """
    attributes = dict(parameter.__dict__)
    _swap(parameter, packed)
    parameter.__dict__.update({**attributes, "origin": packed})
    packed.data = torch.empty(0, dtype=packed.dtype, device="cpu")


def turn_back(weight: Any) -> None:
    """Undoes turn()."""
    origin, own = weight.origin, vars(PackedWeight(weight.parts, weight.experts))
    origin.data = weight.dense()
    own |= dict.fromkeys(("origin", "is_trained", "_is_param"))
    attributes = {name: x for name, x in vars(weight).items() if name not in own}
    _swap(weight, origin)
    weight.__dict__ = attributes
