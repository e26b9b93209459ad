"""optimize()."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, TypeVar

from torch import nn

from ._check import check_model, check_types
from ._replacement import Replacement
from ._state import mode_of

Model = TypeVar("Model", bound=nn.Module)


def optimize(
    model: Model,
    weights: str | None = None,
    activations: str | None = None,
    inplace: bool = False,
    *,
    release: bool = False,
    skip: Sequence[str] = (),
) -> Model:
    """Makes a PyTorch model compute by headlane, for inference.

    Replaced are Linear layers (transformers' Conv1D too), layer norms, modules that compute an RMS norm
    or an activation, torch.nn.MultiheadAttention, the embedding that shares its weight with a Linear
    layer, calls of scaled_dot_product_attention in code of the model, and the attention of transformers.
    Linear layers are fused with the activation, gate or sum that follows them where the code of their
    module does nothing else, and so are whole layers of transformers' encoders in float32. What is not
    replaced runs as before: report() says why.

    The model stays what it was: the same modules, names, hooks, configuration and state_dict(). A module
    takes its own code, with its weights unpacked for that call, if the call is in training mode, under
    autocast, of an input that requires a gradient, or of another type or device than the weights. So do
    modules whose weights are converted, as by half().

    Each weight is packed once and its tensor released, unless packing rounds: then the tensor is kept,
    and memory grows, if it is not released by `release`. Parameters no longer require gradients.

    Args:
        model: A module in evaluation mode. Tensors on other devices than the CPU, and of other types than
            float32, bfloat16 and float16, stay as they are.
        weights: How weights are stored: "float32", "bfloat16", "float16", "int8", "int8_group32",
            "int4_group32", as by PackedMatrix. None: each as it is.
        activations: "int8" for products of integers, with weights of "int8", "int8_group32" and
            "int4_group32"; "bfloat16" with weights of "bfloat16", those of the model too. See linear(). A
            model in bfloat16 is faster so where the CPU multiplies pairs of bfloat16.
        inplace: Change the model itself. Otherwise it stays as it is, and a copy is returned, which shares
            the tensors that are not packed.
        release: Release tensors whose weights are rounded, too. restore() is refused then, and
            state_dict() has the rounded values.
        skip: Names of modules that keep their weights and code, with * and ?: ("lm_head", "encoder.*").

    Returns:
        The model, or its copy.

    Raises:
        ValueError: the model is in training mode, compiled by torch.jit, or optimized already, or arguments
            do not fit.
    """
    check_model(model)
    check_types(model, weights, activations)
    skip = [skip] if isinstance(skip, str) else list(skip)
    with mode_of(model):
        if not inplace:
            model = _copy_of(model)
        Replacement(model, weights, activations or "float32", release, skip).run()
    return model


def _copy_of(model: Model) -> Model:
    """A copy whose parameters share their memory with those of the model."""
    memo: dict[int, Any] = {}
    for parameter in model.parameters():
        if type(parameter) is nn.Parameter:
            memo[id(parameter)] = nn.Parameter(parameter.detach(), requires_grad=parameter.requires_grad)
    return copy.deepcopy(model, memo)
