"""EncoderLayer and DecoderLayer, from state dicts of PyTorch; immutable, as Linear."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _core
from ._kv_cache import KvCache
from ._layers import Layer
from ._team import refused_together
from ._types import (
    ActivationDType,
    Array,
    DType,
    MaskedScoreOptions,
    ScoreOptions,
    Sequences,
    State,
    Unpack,
)

if TYPE_CHECKING:
    from .mpi import Communicator


class _TransformerLayer(Layer):
    """What EncoderLayer and DecoderLayer are constructed from."""

    __slots__ = ()
    _team: _core.MpiTeam | None

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
        weights: DType = "float32",
        activations: ActivationDType = "float32",
        team: Communicator | None = None,
    ) -> None:
        options = {
            "num_heads": num_heads,
            "num_kv_heads": num_kv_heads,
            "scale": scale,
            "activation": activation,
            "norm": norm,
            "norm_first": norm_first,
            "layer_norm_eps": layer_norm_eps,
            "weights": weights,
            "activations": activations,
        }
        self._team = None if team is None else _core.MpiTeam(team)
        self._construct(state, prefix, options, team=self._team)


class EncoderLayer(_TransformerLayer, _core.EncoderLayer):
    """torch.nn.TransformerEncoderLayer, batch first and without dropout, from its state dict.

    Bool masks are the opposite of PyTorch's src_mask and src_key_padding_mask: True marks a visible key
    (see MultiHeadAttention).

    Args:
        state: As for Linear; the layer reads "self_attn.…" (see MultiHeadAttention), "linear1.…",
            "linear2.…" and "linear_gate.…" (see FeedForward), "norm1.…" and "norm2.…".
        prefix: The beginning of the names.
        num_heads: As in MultiHeadAttention.
        num_kv_heads: As in MultiHeadAttention.
        scale: As in MultiHeadAttention.
        activation: As in FeedForward.
        norm: "layer" or "rms".
        norm_first: x + f(norm(x)) instead of norm(x + f(x)).
        layer_norm_eps: eps of the norms.
        weights: How all weight matrices are stored, as for Linear.
        activations: Of all products by weights, as for Linear.
        team: Ranks that compute the layer together, each with its share of the weights (tensor parallelism):
            every rank makes the same calls with all of x, and has the bits of one process. A KvCache then
            has the kv heads of the rank, and the layer has no state_dict() and cannot be pickled.
    """

    __slots__ = ("_options", "_packed", "_team")

    def forward(
        self,
        x: Array,
        attn_mask: Any = None,
        *,
        out: Array | None = None,
        num_threads: int | None = None,
        **options: Unpack[ScoreOptions],
    ) -> Array:
        """Computes the layer.

        Args:
            x: [batch, length, d_model] or [length, d_model].
            attn_mask: As in scaled_dot_product_attention, for scores [batch, heads, length, length].
            out: Where to write the result; may be x itself.
            num_threads: Maximum number of threads; num_threads() if None or 0.
            **options: Those of scaled_dot_product_attention: is_causal, key_lengths, query_starts …

        Returns:
            An array of x's shape.
        """
        return _core.EncoderLayer.forward(self, x, attn_mask, options, out, num_threads)

    __call__ = forward


class DecoderLayer(_TransformerLayer, _core.DecoderLayer):
    """torch.nn.TransformerDecoderLayer, batch first and without dropout, from its state dict.

    Bool masks are the opposite of PyTorch's tgt_mask, memory_mask and padding masks: True marks a visible
    key (see MultiHeadAttention).

    The parameters are those of EncoderLayer. The layer also reads "multihead_attn.…", the cross-attention,
    and "norm3.…", the norm of the feed-forward part.
    """

    __slots__ = ("_options", "_packed", "_team")

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
        """Computes the layer. Self-attention is causal: with caches always, else unless is_causal=False.

        With caches instead of memory, x holds the next tokens of sequences whose earlier ones are in
        `cache`, and whose memory remember() has put into `memory_cache`.

        Args:
            x: [batch, length, d_model] or [length, d_model].
            memory: [batch, memory_length, width] or [memory_length, width].
            attn_mask: Of the self-attention, as in EncoderLayer.forward.
            cache: A KvCache for the self-attention.
            sequences: The number of the sequence of each batch element in cache.
            memory_cache: Another KvCache, for the cross-attention.
            memory_sequences: The number of the sequence of each batch element in memory_cache.
            cross: A dict of the options of the cross-attention, attn_mask among them.
            out: Where to write the result; may be x itself.
            num_threads: Maximum number of threads; num_threads() if None or 0.
            **options: Of the self-attention, as in EncoderLayer.forward.

        Returns:
            An array of x's shape.
        """
        if cross is not None and not isinstance(cross, dict):
            with refused_together(self._team, "DecoderLayer.forward", "DecoderLayer::forward"):
                raise TypeError(
                    f"DecoderLayer.forward: cross has type {type(cross).__name__}; wanted: a dict"
                )
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
        """As MultiHeadAttention.remember, with the projections of the cross-attention."""
        _core.DecoderLayer.remember(self, memory, cache, sequences, key_lengths, key_starts, num_threads)
