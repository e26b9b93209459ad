"""Layers of a transformer, from state dicts of PyTorch: their weights are packed once. A layer never changes."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _core
from ._kv_cache import KvCache
from ._types import Array, MaskedScoreOptions, ScoreOptions, Sequences, State, Unpack


def _restored(layer: type, state: State, options: dict[str, Any]) -> Any:
    return layer(state, **options)


def _same(self: Any, memo: Any = None) -> Any:
    """A copy of what never changes."""
    return self


class Linear(_core.Linear):
    """torch.nn.Linear with the weight [out_features, in_features] and, if it is there, the bias of a state dict.

    state: a dict of float32 arrays of any kind, as state_dict() of a PyTorch module is; the tensors are prefix + "weight" and
      prefix + "bias". The weight is packed once and neither is needed afterwards.

    A layer never changes: any number of threads may use it, and a copy of it is itself. It is pickled as its state dict.
    """

    __slots__ = ()

    def __init__(self, state: State, prefix: str = "") -> None:
        _core.Linear.__init__(self, state, prefix)

    def forward(
        self,
        x: Array,
        *,
        activation: str | None = None,
        residual: Any = None,
        out: Array | None = None,
        num_threads: int | None = None,
    ) -> Array:
        """activation(x @ weight.T + bias) + residual of x [batch, length, in_features] or [length, in_features].

        activation: as in FeedForward. residual: of the result's shape. out: where to write the result; must overlap nothing.
        num_threads: for this call; num_threads() if None or 0.
        """
        return _core.Linear.forward(self, x, activation, residual, out, num_threads)

    __call__ = forward
    __copy__ = __deepcopy__ = _same

    def state_dict(self) -> dict[str, np.ndarray]:
        """The tensors that it was made of, under their names without the prefix."""
        return _core.Linear.state_dict(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (Linear, self.state_dict(), {})


class Embedding(_core.Embedding):
    """torch.nn.Embedding: prefix + "weight" [num_embeddings, embedding_dim] of a state dict (see Linear).

    tied: the weight is the output layer's as well, for logits(). It is kept once.
    max_length: tokens that a sequence may have; None: any number.
    """

    __slots__ = ("_options",)

    def __init__(
        self, state: State, prefix: str = "", *, tied: bool = False, max_length: int | None = None
    ) -> None:
        _core.Embedding.__init__(self, state, prefix, tied, max_length)
        self._options = {"tied": tied, "max_length": max_length}

    def forward(
        self, ids: Any, *, scale: float = 1.0, add: bool = False, truncate: bool = False, out: Any = None
    ) -> Any:
        """The vectors of ids, integers [batch, length] or [length], times scale: sqrt(d_model) in the paper.

        truncate: of longer sequences the first max_length tokens, instead of an error.
        add: adds to what out holds, for the sum of several embeddings. The result is a NumPy array if out is None.
        """
        return _core.Embedding.forward(self, ids, scale, add, truncate, out)

    __call__ = forward
    __copy__ = __deepcopy__ = _same

    def logits(self, x: Array, *, out: Array | None = None, num_threads: int | None = None) -> Array:
        """x @ weight.T, [..., length, num_embeddings]; of a tied embedding."""
        return _core.Embedding.logits(self, x, out, num_threads)

    def state_dict(self) -> dict[str, np.ndarray]:
        """See Linear.state_dict."""
        return _core.Embedding.state_dict(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (Embedding, self.state_dict(), self._options)


class FeedForward(_core.FeedForward):
    """linear2(activation(linear1(x))), as torch.nn.TransformerEncoderLayer has it; the hidden layer is never stored whole.

    state: "linear1.weight", "linear1.bias", "linear2.weight", "linear2.bias" (see Linear); with "linear_gate.weight" it is gated:
      linear2(activation(linear_gate(x)) * linear1(x)). Biases may be absent.
    activation: "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "erf" or None.
    """

    __slots__ = ("_options",)

    def __init__(self, state: State, prefix: str = "", *, activation: str | None = "relu") -> None:
        _core.FeedForward.__init__(self, state, prefix, activation)
        self._options = {"activation": activation}

    def forward(self, x: Array, *, out: Array | None = None, num_threads: int | None = None) -> Array:
        """The layer of x [batch, length, d_model] or [length, d_model]; out may be x itself."""
        return _core.FeedForward.forward(self, x, out, num_threads)

    __call__ = forward
    __copy__ = __deepcopy__ = _same

    def state_dict(self) -> dict[str, np.ndarray]:
        """See Linear.state_dict."""
        return _core.FeedForward.state_dict(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (FeedForward, self.state_dict(), self._options)


class MultiHeadAttention(_core.MultiHeadAttention):
    """torch.nn.MultiheadAttention, batch first, of a state dict (see Linear).

    state: "in_proj_weight", or "q_proj_weight", "k_proj_weight" and "v_proj_weight"; "in_proj_bias", "out_proj.weight",
      "out_proj.bias". Biases may be absent.
    num_heads; num_kv_heads: heads of keys and values, a divisor, num_heads if None.
    scale: of the scores, 1 / sqrt(head_dim) if None.

    A bool mask is the opposite of torch.nn.MultiheadAttention's: here, as in scaled_dot_product_attention, True marks a key that is
    seen, there one that is not. Pass ~attn_mask, and for a key_padding_mask key_lengths or ~key_padding_mask[:, None, None, :].
    """

    __slots__ = ("_options",)

    def __init__(
        self,
        state: State,
        prefix: str = "",
        *,
        num_heads: int,
        num_kv_heads: int | None = None,
        scale: float | None = None,
    ) -> None:
        _core.MultiHeadAttention.__init__(self, state, prefix, num_heads, num_kv_heads, scale)
        self._options = {"num_heads": num_heads, "num_kv_heads": num_kv_heads, "scale": scale}

    def forward(
        self,
        x: Array,
        memory: Any = None,
        attn_mask: Any = None,
        *,
        cache: KvCache | None = None,
        sequences: Sequences | None = None,
        remembered: bool = False,
        out: Array | None = None,
        num_threads: int | None = None,
        **options: Unpack[ScoreOptions],
    ) -> Array:
        """Self-attention of x [batch, length, d] or [length, d]; attention to memory [batch, memory's length, width] if that is given.

        With cache and sequences: appends the keys and values of x, batch element b to sequences[b], and attends causally to all that
        the cache holds. With cache, sequences and remembered=True: attends to what remember() has put there.
        attn_mask and **options: those of scaled_dot_product_attention (is_causal, key_lengths, query_starts, …), for scores
        [batch, heads, length, keys]; in a bool mask True is seen, the opposite of PyTorch's module. out may be x itself.
        """
        return _core.MultiHeadAttention.forward(
            self, x, memory, attn_mask, options, cache, sequences, remembered, out, num_threads
        )

    __call__ = forward
    __copy__ = __deepcopy__ = _same

    def remember(
        self,
        memory: Any,
        cache: KvCache,
        sequences: Sequences,
        *,
        key_lengths: Any = None,
        key_starts: Any = None,
        num_threads: int | None = None,
    ) -> None:
        """Appends the keys and values of memory [batch, length, width] to a KvCache, batch element b to sequences[b].

        key_lengths: of each batch element the first so many rows. key_starts: memory is a ragged batch of one batch element.
        """
        _core.MultiHeadAttention.remember(
            self, memory, cache, sequences, key_lengths, key_starts, num_threads
        )

    def state_dict(self) -> dict[str, np.ndarray]:
        """See Linear.state_dict; three projections from rows of one width come as one, "in_proj_weight"."""
        return _core.MultiHeadAttention.state_dict(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (MultiHeadAttention, self.state_dict(), self._options)


class EncoderLayer(_core.EncoderLayer):
    """torch.nn.TransformerEncoderLayer, batch first, without dropout, of its state dict (see Linear).

    state: "self_attn.…", "linear1.…", "linear2.…", "norm1.…", "norm2.…"; with "linear_gate.…" the feed-forward part is gated.
    num_heads, num_kv_heads, scale: as in MultiHeadAttention. activation: as in FeedForward. norm: "layer" or "rms".
    norm_first: x + f(norm(x)) instead of norm(x + f(x)). layer_norm_eps: of the norms.

    A bool mask is the opposite of PyTorch's src_mask and src_key_padding_mask: True marks what is seen (see MultiHeadAttention).
    """

    __slots__ = ("_options",)

    def __init__(
        self,
        state: State,
        prefix: str = "",
        *,
        num_heads: int,
        num_kv_heads: int | None = None,
        scale: float | None = None,
        activation: str | None = "relu",
        norm: str = "layer",
        norm_first: bool = False,
        layer_norm_eps: float = 1e-5,
    ) -> None:
        _core.EncoderLayer.__init__(
            self,
            state,
            prefix,
            num_heads,
            num_kv_heads,
            scale,
            activation,
            norm,
            norm_first,
            layer_norm_eps,
        )
        self._options = {
            "num_heads": num_heads,
            "num_kv_heads": num_kv_heads,
            "scale": scale,
            "activation": activation,
            "norm": norm,
            "norm_first": norm_first,
            "layer_norm_eps": layer_norm_eps,
        }

    def forward(
        self,
        x: Array,
        attn_mask: Any = None,
        *,
        out: Array | None = None,
        num_threads: int | None = None,
        **options: Unpack[ScoreOptions],
    ) -> Array:
        """The layer of x [batch, length, d] or [length, d]; out may be x itself.

        attn_mask and **options: those of scaled_dot_product_attention (is_causal, key_lengths, query_starts, …); in a bool mask
        True is seen, the opposite of PyTorch's module.
        """
        return _core.EncoderLayer.forward(self, x, attn_mask, options, out, num_threads)

    __call__ = forward
    __copy__ = __deepcopy__ = _same

    def state_dict(self) -> dict[str, np.ndarray]:
        """See MultiHeadAttention.state_dict."""
        return _core.EncoderLayer.state_dict(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (EncoderLayer, self.state_dict(), self._options)


class DecoderLayer(_core.DecoderLayer):
    """torch.nn.TransformerDecoderLayer, batch first, without dropout, of its state dict (see Linear).

    state: as of EncoderLayer, with "multihead_attn.…", the attention to memory, and "norm3.…", the feed-forward part's.
    The other parameters are those of EncoderLayer.

    A bool mask is the opposite of PyTorch's tgt_mask, memory_mask and padding masks: True marks what is seen (see
    MultiHeadAttention).
    """

    __slots__ = ("_options",)

    def __init__(
        self,
        state: State,
        prefix: str = "",
        *,
        num_heads: int,
        num_kv_heads: int | None = None,
        scale: float | None = None,
        activation: str | None = "relu",
        norm: str = "layer",
        norm_first: bool = False,
        layer_norm_eps: float = 1e-5,
    ) -> None:
        _core.DecoderLayer.__init__(
            self,
            state,
            prefix,
            num_heads,
            num_kv_heads,
            scale,
            activation,
            norm,
            norm_first,
            layer_norm_eps,
        )
        self._options = {
            "num_heads": num_heads,
            "num_kv_heads": num_kv_heads,
            "scale": scale,
            "activation": activation,
            "norm": norm,
            "norm_first": norm_first,
            "layer_norm_eps": layer_norm_eps,
        }

    def forward(
        self,
        x: Array,
        memory: Any = None,
        attn_mask: Any = None,
        *,
        cache: KvCache | None = None,
        sequences: Sequences | None = None,
        memory_cache: KvCache | None = None,
        memory_sequences: Sequences | None = None,
        cross: MaskedScoreOptions | None = None,
        out: Array | None = None,
        num_threads: int | None = None,
        **options: Unpack[ScoreOptions],
    ) -> Array:
        """The layer of x with memory, both [batch, length, d] or [length, d].

        Each position sees those before it unless is_causal=False. With cache, sequences, memory_cache and memory_sequences instead of
        memory: the next tokens of sequences whose earlier ones the cache holds, and whose memory remember() has put into
        memory_cache. attn_mask and **options are those of self-attention (see EncoderLayer.forward), cross a dict of those of the
        attention to memory, which may have attn_mask too.
        """
        if cross is not None and not isinstance(cross, dict):
            raise TypeError(f"DecoderLayer.forward: cross has type {type(cross).__name__}; wanted: a dict")
        return _core.DecoderLayer.forward(
            self,
            x,
            memory,
            attn_mask,
            {"is_causal": True, **options},
            cache,
            sequences,
            memory_cache,
            memory_sequences,
            dict(cross or {}),
            out,
            num_threads,
        )

    __call__ = forward
    __copy__ = __deepcopy__ = _same

    def remember(
        self,
        memory: Any,
        cache: KvCache,
        sequences: Sequences,
        *,
        key_lengths: Any = None,
        key_starts: Any = None,
        num_threads: int | None = None,
    ) -> None:
        """See MultiHeadAttention.remember."""
        _core.DecoderLayer.remember(self, memory, cache, sequences, key_lengths, key_starts, num_threads)

    def state_dict(self) -> dict[str, np.ndarray]:
        """See MultiHeadAttention.state_dict."""
        return _core.DecoderLayer.state_dict(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (DecoderLayer, self.state_dict(), self._options)
