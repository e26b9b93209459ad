"""The encoder and the layers of torch.nn.Transformer, whose modules are replaced."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.compiler import is_compiling

from ._modules import Activation, Linear, Replaced, product
from ._recognise import activation_of
from ._state import is_plain, is_plain_traced
from ._untouched import is_untouched


class _WithAttribute(Replaced):
    """A module with another value of an attribute; `_headlane` has the old one, None if there is none."""

    attribute: str

    def put_back(self) -> None:
        if self._headlane.before is not None:
            setattr(self, self.attribute, self._headlane.before)
        super().put_back()


class AttributeState:
    __slots__ = ("activation", "before", "name")

    def __init__(self, before: Any, activation: Any = None, name: str | None = None) -> None:
        self.before = before
        self.activation = activation
        self.name = name


class Encoder(_WithAttribute):
    """torch.nn.TransformerEncoder, which would make nested tensors of some batches with padding. They get
    what such a batch has in rows of padding: 0, before the last norm.
    """

    attribute = "use_nested_tensor"

    def forward(
        self, src: torch.Tensor, mask: Any = None, src_key_padding_mask: Any = None, is_causal: Any = None
    ) -> torch.Tensor:
        result = super().forward(src, mask, src_key_padding_mask, is_causal)
        if src_key_padding_mask is None or not self._would_nest(src, mask):
            return result
        padding = src_key_padding_mask.bool()
        if getattr(self, "mask_check", True) and not (padding[:, 1:] >= padding[:, :-1]).all():
            return result
        nothing = src.new_zeros(1, 1, src.shape[-1])
        nothing = nothing if self.norm is None else self.norm(nothing)
        return torch.where(padding.unsqueeze(-1), nothing, result)

    def _would_nest(self, src: torch.Tensor, mask: Any) -> bool:
        return bool(
            self._headlane.before
            and mask is None
            and not self.training
            and src.dim() == 3
            and torch.backends.mha.get_fastpath_enabled()
            and not (getattr(self, "mask_check", True) and is_compiling())
            and is_plain(src, src.dtype)
        )

    @classmethod
    def adopt(cls, module: Any, state: Any = None) -> None:
        state = AttributeState(module.use_nested_tensor)
        module.use_nested_tensor = False
        super().adopt(module, state)


class FeedForwardBlock(_WithAttribute):
    """torch.nn.TransformerEncoderLayer and TransformerDecoderLayer: their two Linear layers."""

    # Where it is 0, an encoder layer does not take PyTorch's path of a single operator. A decoder
    # layer has none.
    attribute = "activation_relu_or_gelu"

    @classmethod
    def adopt(cls, module: Any, state: Any = None) -> None:
        function = module.activation
        name = None if isinstance(function, nn.Module) else activation_of(function)
        before = module.__dict__.get(cls.attribute)
        super().adopt(module, AttributeState(before, function, None if name == "identity" else name))
        if before:
            setattr(module, cls.attribute, 0)

    def _ff_block(self, x: torch.Tensor) -> torch.Tensor:
        state, linear = self._headlane, self.linear1
        function = self.activation
        name = function._headlane if isinstance(function, Activation) else state.name
        if (
            name is None
            or function is not state.activation
            or self.training
            or not isinstance(linear, Linear)
            or type(self.dropout) is not nn.Dropout
            or not all(is_untouched(x) for x in (function, self.dropout) if isinstance(x, nn.Module))
        ):
            return super()._ff_block(x)
        if is_compiling() and is_plain_traced(x, linear._headlane.dtype):
            hidden = torch.ops.headlane.activation(linear(x), name)
        elif not is_compiling() and is_untouched(linear) and is_plain(x, linear._headlane.dtype):
            hidden = product(linear, x, name)
        else:
            return super()._ff_block(x)
        return getattr(self, "dropout3", self.dropout2)(self.linear2(hidden))
