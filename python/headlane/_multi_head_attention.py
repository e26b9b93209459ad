"""MultiHeadAttention, from state dicts of PyTorch; immutable, as Linear."""

from __future__ import annotations

from typing import Any

from . import _core
from ._kv_cache import KvCache
from ._layers import Layer
from ._types import ActivationDType, Array, DType, ScoreOptions, Sequences, State, Unpack


class MultiHeadAttention(Layer, _core.MultiHeadAttention):
    """torch.nn.MultiheadAttention, batch first, from a state dict.

    Bool masks are the opposite of torch.nn.MultiheadAttention's: as in scaled_dot_product_attention,
    True marks a visible key, not a masked one. Pass ~attn_mask; for a key_padding_mask pass key_lengths
    or ~key_padding_mask[:, None, None, :].

    Args:
        state: As for Linear; the layer reads "in_proj_weight", or "q_proj_weight", "k_proj_weight" and
            "v_proj_weight"; "in_proj_bias"; "out_proj.weight" and "out_proj.bias". Biases are optional.
        prefix: The beginning of the names.
        num_heads: The number of query heads.
        num_kv_heads: The number of heads of keys and values, a divisor of num_heads; num_heads if None.
        scale: Factor of the scores; 1 / sqrt(head_dim) if None.
        weights: As for Linear.
        activations: Of the projections, as for Linear.
    """

    __slots__ = ("_options", "_packed")

    def __init__(
        self,
        state: State,
        prefix: str = "",
        *,
        num_heads: int,
        num_kv_heads: int | None = None,
        scale: float | None = None,
        weights: DType = "float32",
        activations: ActivationDType = "float32",
    ) -> None:
        options = {
            "num_heads": num_heads,
            "num_kv_heads": num_kv_heads,
            "scale": scale,
            "weights": weights,
            "activations": activations,
        }
        self._construct(state, prefix, options)

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
        """Self-attention of x, or cross-attention to memory.

        With cache and sequences it appends the keys and values of x to the cache and attends, causally,
        to all that the cache holds.

        Args:
            x: [batch, length, d_model] or [length, d_model].
            memory: [batch, memory_length, width] or [memory_length, width], for cross-attention.
            attn_mask: As in scaled_dot_product_attention, for scores [batch, heads, length, keys].
            cache: A KvCache, instead of memory.
            sequences: The number of the sequence of each batch element, with cache.
            remembered: Attend to what remember() has put into the cache, and append nothing.
            out: Where to write the result; may be x itself.
            num_threads: Maximum number of threads; num_threads() if None or 0.
            **options: Those of scaled_dot_product_attention: is_causal, key_lengths, query_starts …

        Returns:
            An array of x's shape.
        """
        return _core.MultiHeadAttention.forward(
            self, x, memory, attn_mask, options, cache, sequences, remembered, out, num_threads
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
        """Appends the keys and values of memory to a KvCache.

        Args:
            memory: [batch, length, width] or [length, width].
            cache: The KvCache.
            sequences: The number of the sequence of each batch element.
            key_lengths: integers [batch]: rows of memory from this index on are padding.
            key_starts: integers [sequences + 1]: memory is a variable-length batch, in one batch element.
            num_threads: Maximum number of threads; num_threads() if None or 0.
        """
        _core.MultiHeadAttention.remember(
            self, memory, cache, sequences, key_lengths, key_starts, num_threads
        )
