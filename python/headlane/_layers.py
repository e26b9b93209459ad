"""Linear, Embedding and FeedForward, from state dicts of PyTorch.

A layer is immutable: its weights are packed once, any number of threads may use it, and a copy of it is
the layer itself. It is pickled as its state dict.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _core
from ._immutable import itself
from ._types import ActivationDType, Array, DType, State


def restored(layer: type, state: State, options: dict[str, Any]) -> Any:
    """Unpickles a layer."""
    return layer(state, **options)


class Layer:
    """What all layers have: a base in front of the class of _core."""

    __slots__ = ()
    _options: dict[str, Any]
    _packed: bool  # it keeps a PackedMatrix of its state as it is

    def _construct(self, state: State, prefix: str, options: dict[str, Any], **more: Any) -> None:
        super().__init__(state, prefix, **options, **more)
        self._options = options
        self._packed = any(
            isinstance(x, _core.PackedMatrix) and name.startswith(prefix) for name, x in state.items()
        )

    __copy__ = __deepcopy__ = itself

    def state_dict(self) -> dict[str, np.ndarray]:
        """The tensors of the layer, bit for bit, under their names without the prefix. In attention,
        three projections from rows of one width are joined as "in_proj_weight".
        """
        return super().state_dict()

    def __reduce__(self) -> tuple[Any, ...]:
        kind = type(self)
        if self._packed:
            raise TypeError(f"{kind.__name__} has weights that were packed before it: it cannot be pickled")
        return restored, (kind, self.state_dict(), self._options)


class Linear(Layer, _core.Linear):
    """torch.nn.Linear, from a state dict.

    Args:
        state: A dict of arrays of any kind, of float32, bfloat16 or float16, such as state_dict() of a
            PyTorch module. The layer reads prefix + "weight" [out_features, in_features] and, if present,
            prefix + "bias". It keeps a packed copy; the arrays are not needed afterwards. The weight may be
            a PackedMatrix [in_features, out_features], whose numbers and scales the layer keeps whatever
            `weights` says; then it cannot be pickled.
        prefix: The beginning of the names.
        weights: How the weights are stored: the dtype of a PackedMatrix.
        activations: "int8" and "bfloat16" round x, as in linear(), for weights of such a type.
    """

    __slots__ = ("_options", "_packed")

    def __init__(
        self,
        state: State,
        prefix: str = "",
        *,
        weights: DType = "float32",
        activations: ActivationDType = "float32",
    ) -> None:
        self._construct(state, prefix, {"weights": weights, "activations": activations})

    def forward(
        self,
        x: Array,
        *,
        activation: str | None = None,
        residual: Any = None,
        out: Array | None = None,
        num_threads: int | None = None,
    ) -> Array:
        """activation(x @ weight.T + bias) + residual.

        Args:
            x: [batch, length, in_features] or [length, in_features].
            activation: "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "erf" or None.
            residual: An array of the result's shape, added last.
            out: Where to write the result; must not overlap any argument.
            num_threads: Maximum number of threads; num_threads() if None or 0.

        Returns:
            [batch, length, out_features] or [length, out_features].
        """
        return _core.Linear.forward(self, x, activation, residual, out, num_threads)

    __call__ = forward


class Embedding(Layer, _core.Embedding):
    """torch.nn.Embedding, from a state dict.

    Args:
        state: As for Linear; the layer reads prefix + "weight" [num_embeddings, embedding_dim].
        prefix: The beginning of the name.
        tied: The weight is also that of the output layer, for logits(). It is stored once.
        max_length: The maximum length of a sequence; None: unbounded.
        weights: As for Linear; "int8" has a scale for each vector.
        activations: Of logits(), as for Linear.
    """

    __slots__ = ("_options", "_packed")

    def __init__(
        self,
        state: State,
        prefix: str = "",
        *,
        tied: bool = False,
        max_length: int | None = None,
        weights: DType = "float32",
        activations: ActivationDType = "float32",
    ) -> None:
        options = {"tied": tied, "max_length": max_length, "weights": weights, "activations": activations}
        self._construct(state, prefix, options)

    def forward(
        self, ids: Any, *, scale: float = 1.0, add: bool = False, truncate: bool = False, out: Any = None
    ) -> Any:
        """The embeddings of token ids.

        Args:
            ids: integers [batch, length] or [length].
            scale: Factor of the embeddings; sqrt(d_model) in Vaswani et al. 2017.
            add: Add to the values in out, for a sum of several embeddings.
            truncate: Use the first max_length tokens of longer sequences, which are an error otherwise.
            out: Where to write the result; required by add.

        Returns:
            [batch, length, embedding_dim] or [length, embedding_dim]; a NumPy array if out is None.
        """
        return _core.Embedding.forward(self, ids, scale, add, truncate, out)

    __call__ = forward

    def logits(self, x: Array, *, out: Array | None = None, num_threads: int | None = None) -> Array:
        """x @ weight.T, for a tied embedding.

        Args:
            x: [batch, length, embedding_dim] or [length, embedding_dim].
            out: Where to write the result; must not overlap x.
            num_threads: Maximum number of threads; num_threads() if None or 0.

        Returns:
            [..., length, num_embeddings].
        """
        return _core.Embedding.logits(self, x, out, num_threads)


class FeedForward(Layer, _core.FeedForward):
    """linear2(activation(linear1(x))), the feed-forward part of torch.nn.TransformerEncoderLayer.

    With "linear_gate.weight" it is gated: linear2(activation(linear_gate(x)) * linear1(x)). The hidden
    layer is never stored as a whole.

    Args:
        state: As for Linear; the layer reads "linear1.weight", "linear1.bias", "linear2.weight" and
            "linear2.bias", and "linear_gate.weight" and "linear_gate.bias" if present. Biases are
            optional.
        prefix: The beginning of the names.
        activation: "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "erf" or None.
        weights: As for Linear.
        activations: As for Linear.
    """

    __slots__ = ("_options", "_packed")

    def __init__(
        self,
        state: State,
        prefix: str = "",
        *,
        activation: str | None = "relu",
        weights: DType = "float32",
        activations: ActivationDType = "float32",
    ) -> None:
        options = {"activation": activation, "weights": weights, "activations": activations}
        self._construct(state, prefix, options)

    def forward(self, x: Array, *, out: Array | None = None, num_threads: int | None = None) -> Array:
        """Computes the layer.

        Args:
            x: [batch, length, d_model] or [length, d_model].
            out: Where to write the result; may be x itself.
            num_threads: Maximum number of threads; num_threads() if None or 0.

        Returns:
            An array of x's shape.
        """
        return _core.FeedForward.forward(self, x, out, num_threads)

    __call__ = forward
