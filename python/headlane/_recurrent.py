"""Linear attention and the causal convolution before it, which carry a state from call to call."""

from __future__ import annotations

import math
from typing import Any

from . import _core
from ._types import Array


def linear_attention(
    q: Array,
    k: Any,
    v: Any,
    log_decay: Any = None,
    beta: Any = None,
    *,
    state: Any = None,
    a_log: Any = None,
    dt_bias: Any = None,
    discretize: bool = False,
    min_step: float = 0.0,
    max_step: float = math.inf,
    sigmoid_beta: bool = False,
    beta_scale: float = 1.0,
    skip: Any = None,
    scale: float | None = None,
    normalize: bool = False,
    eps: float = 1e-6,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """Attention with a state of a fixed size instead of keys and values, updated token by token.

    For each batch element and head, token after token, with a state S [key_dim, value_dim]:

        S = diag(exp(log_decay)) @ S
        u = beta * (v - S.T @ k)        without beta: u = v
        S = S + outer(k, u)
        out = scale * S.T @ q           with skip: + skip * v

    With beta this is the gated delta rule (Gated DeltaNet, Qwen3-Next), with a decay for each row of the
    state Kimi Delta Attention; without beta gated linear attention, RetNet, and Mamba-2 (q = C, k = B,
    v = x, log_decay = dt, with discretize, skip = D and scale = 1). A sequence has the same bits in one call
    as in several that pass the state on.

    With a_log, decays are computed from a gate, as in Mamba-2 and Gated DeltaNet, where log_decay is what
    the model projects: log_decay is first -exp(a_log) * softplus(log_decay + dt_bias).

    Args:
        q: [batch, key_heads, length, key_dim], or without the first one or two axes. Batch axes of 1
            broadcast.
        k: Of q's shape.
        v: [batch, heads, length, value_dim], with as many axes as q. key_heads divides heads: head h uses
            key head h // (heads // key_heads).
        log_decay: float32, broadcasts to v's shape without its last axis; or, with as many axes as v, to
            [batch, heads, length, key_dim]: a decay for each row of the state. None: no decay.
        beta: float32, broadcasts to v's shape without its last axis. None: values are added as they are.
        state: float32 [batch, heads, key_dim, value_dim], without the axes that v does not have: read
            before the first token, and written in place after the last one (rounded if it has 16 bits).
            None: begins with 0.
        a_log: float32, broadcasts to [heads] (one head if v has no such axis); for log_decay, see above.
        dt_bias: With a_log: float32, broadcasts to [heads]; with two axes, for a log_decay with as many axes
            as v, to [heads, key_dim]. Without heads if v has no such axis. None: 0.
        discretize: With a_log, and one decay for each token: values are first multiplied by the step
            softplus(log_decay + dt_bias), as in Mamba-2.
        min_step: With discretize: a step below it is min_step, for the decay, too.
        max_step: Likewise above it.
        sigmoid_beta: sigmoid(beta) takes the place of beta.
        beta_scale: Multiplies beta; 2 where eigenvalues of the state may be negative.
        skip: float32, broadcasts to [heads]: skip * v is added to the result; D of Mamba-2.
        scale: Factor of the result; 1 / sqrt(key_dim) if None.
        normalize: Divide queries and keys by their length: x / sqrt(sum(x**2) + eps).
        eps: For normalize.
        out: Where to write the result.
        num_threads: Maximum number of threads; num_threads() if None or 0.

    Returns:
        [batch, heads, length, value_dim]: an array of v's shape.
    """
    return _core.linear_attention(
        q, k, v, log_decay, beta, state, a_log, dt_bias, discretize, min_step, max_step, sigmoid_beta,
        beta_scale, skip, scale, normalize, eps, out, num_threads,
    )  # fmt: skip


def causal_convolution(
    x: Array,
    weight: Any,
    bias: Any = None,
    *,
    activation: str | None = None,
    state: Any = None,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """Causal depthwise convolution over tokens, the short convolution before linear attention.

    Token t of a channel c is activation(bias[c] + sum over j of weight[c, j] * x[t - (width - 1) + j, c]),
    as in torch.nn.Conv1d with groups=channels and width - 1 zeros on the left. A sequence has the same bits
    in one call as in several that pass the state on.

    Args:
        x: [batch, length, channels] or [length, channels].
        weight: float32 [channels, width]; width is 1 to 64.
        bias: float32 [channels]; 0 if None.
        activation: "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "erf" or None.
        state: float32 [batch, channels, width - 1], without batch if x has none: the inputs before the
            first token, oldest first; those before the token after the last one are written to it, in
            place. None: zeros.
        out: Where to write the result.
        num_threads: Maximum number of threads; num_threads() if None or 0.

    Returns:
        An array of x's shape.
    """
    return _core.causal_convolution(x, weight, bias, activation, state, out, num_threads)
