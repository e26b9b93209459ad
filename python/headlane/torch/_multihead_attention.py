"""torch.nn.MultiheadAttention."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.compiler import is_compiling

import headlane
from headlane import _core

from ._calls import attend
from ._modules import Linear, WithWeights, refuse_gradient, wants_gradient
from ._packed import Packed
from ._stand_in import original_of
from ._state import is_plain, is_plain_traced, threads
from ._weight import PackedWeight

_operators = torch.ops.headlane


class AttentionState:
    """The projections of a torch.nn.MultiheadAttention: packed, of query, key and value.

    parts: Those of its parameters, by their names.
    """

    __slots__ = ("activations", "dtype", "parts", "projections")

    def __init__(self, parameters: dict[str, PackedWeight], activations: str) -> None:
        self.parts = {name: x.parts for name, x in parameters.items()}
        self.projections = [part for parts in self.parts.values() for part in parts]
        self.dtype = self.projections[0].dtype
        self.activations = activations


def _unpacked(module: Any) -> Any:
    """A module of the original class with unpacked weights."""
    made = object.__new__(original_of(module))
    made.__dict__.update(module.__dict__)
    made._parameters = {
        name: nn.Parameter(x.dense(), requires_grad=x.requires_grad) if isinstance(x, PackedWeight) else x
        for name, x in module._parameters.items()
    }
    made._modules = {name: _unpacked(x) for name, x in module._modules.items()}
    return made


class MultiheadAttention(WithWeights):
    """torch.nn.MultiheadAttention."""

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        key_padding_mask: torch.Tensor | None = None,
        need_weights: bool = True,
        attn_mask: torch.Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        masks = [x for x in (key_padding_mask, attn_mask) if x is not None]
        if (
            self._is_plain((query, key, value), masks)
            and not (is_causal and attn_mask is None)
            and self._fits((query, key, value), key_padding_mask, attn_mask)
        ):
            if self.batch_first or query.dim() == 2:
                return self._attend(
                    query,
                    key,
                    value,
                    key_padding_mask,
                    need_weights,
                    attn_mask,
                    average_attn_weights,
                    is_causal,
                )
            inputs = [x.transpose(0, 1) for x in (query, key, value)]
            result, weights = self._attend(
                *inputs, key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal
            )
            return result.transpose(0, 1).contiguous(), weights
        # PyTorch takes nested tensors if no parameter is packed.
        own = _unpacked(self).forward if query.is_nested and not is_compiling() else super().forward
        return own(
            query,
            key,
            value,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )

    def _is_plain(self, inputs: tuple[torch.Tensor, ...], masks: list[torch.Tensor]) -> bool:
        state = self._headlane
        if is_compiling():
            refuse_gradient(self)
        plain = is_plain_traced if is_compiling() else is_plain
        return (
            not self.training
            and not self.add_zero_attn
            and self.bias_k is self.bias_v is None
            and all(plain(x, state.dtype) for x in inputs)
            and inputs[0].dim() in (2, 3)
            and all(plain(x, x.dtype) and x.dtype in (torch.bool, state.dtype) for x in masks)
            and self.has_packed(state.parts)
            and (is_compiling() or not wants_gradient(self))
        )

    def _fits(self, inputs: tuple[torch.Tensor, ...], padding: Any, mask: Any) -> bool:
        """Whether shapes are those that PyTorch takes: nothing is broadcast."""
        (*batch, length), keys, values = (
            x.shape[:-1] if self.batch_first or x.dim() == 2 else (x.shape[1], x.shape[0]) for x in inputs
        )
        scores = (math.prod(batch) * self.num_heads, length, keys[-1])
        return (
            keys == values
            and list(keys[:-1]) == batch
            and (padding is None or padding.shape == keys)
            and (mask is None or mask.shape in (scores, scores[1:]))
        )

    def _output(self, x: torch.Tensor) -> torch.Tensor:
        """PyTorch reads the parameters of out_proj, and does not call it."""
        of = self.out_proj
        return Linear.forward(of, x) if isinstance(of, Linear) else F.linear(x, of.weight, of.bias)

    def _project(self, x: torch.Tensor, part: Packed, bias: torch.Tensor | None) -> torch.Tensor:
        """[..., heads, length, head_dim]"""
        activations = self._headlane.activations
        if is_compiling():
            y = _operators.linear(x, part.packed, part.key, bias, activations)
        else:
            y = _core.linear(x, part.matrix, bias, None, None, None, activations, threads())
        return y.unflatten(-1, (self.num_heads, -1)).transpose(-2, -3)

    def _attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        key_padding_mask: torch.Tensor | None,
        need_weights: bool,
        attn_mask: torch.Tensor | None,
        average: bool,
        is_causal: bool,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """As forward, with the batch first."""
        bias = self.in_proj_bias
        biases = (None, None, None) if bias is None else bias.chunk(3)
        parts = self._headlane.projections
        q, k, v = (self._project(*x) for x in zip((query, key, value), parts, biases))
        # As PyTorch: the hint is_causal makes the mask superfluous if there is no other.
        causal = is_causal and key_padding_mask is None and not need_weights
        mask = None if causal else self._mask(q, k, attn_mask, key_padding_mask)
        result = attend(q, k, v, mask, causal).transpose(-2, -3).flatten(-2)
        weights = None
        if need_weights:
            if is_compiling():
                weights = _operators.attention_weights(q, k, mask)
            else:
                weights = headlane.attention_weights(q, k, mask, num_threads=threads())
            weights = weights.mean(dim=-3) if average else weights
        return self._output(result), weights

    def _mask(
        self, q: torch.Tensor, k: torch.Tensor, attn_mask: torch.Tensor | None, padding: torch.Tensor | None
    ) -> torch.Tensor | None:
        """One mask of both, for [batch, heads, q_length, kv_length]. A bool mask here is True for keys that
        are visible; PyTorch's modules have it the other way round.
        """
        if attn_mask is not None and attn_mask.dim() == 3:  # [batch * heads, q_length, kv_length]
            attn_mask = attn_mask.view(*q.shape[:-2], *attn_mask.shape[1:])
        if padding is not None:
            padding = padding[..., None, None, :]
        masks = [x for x in (attn_mask, padding) if x is not None]
        if not masks:
            return None
        if all(x.dtype == torch.bool for x in masks):
            return ~masks[0] if len(masks) == 1 else ~(masks[0] | masks[1])
        floats = [
            q.new_zeros(x.shape).masked_fill_(x, -torch.inf) if x.dtype == torch.bool else x for x in masks
        ]
        return floats[0] if len(floats) == 1 else floats[0] + floats[1]
