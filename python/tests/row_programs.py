"""Programs of operations on rows, and the same operations by functions of the package."""

import headlane
import torch

WIDTH, HIDDEN, HEADS = 24, 40, 3
TYPES = [torch.float32, torch.bfloat16, torch.float16]


def random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def packed(rows, columns, seed, dtype="float32"):
    return headlane.PackedMatrix(random(rows, columns, seed=seed), dtype=dtype)


def run(program, values, vectors=(), attentions=(), threads=1, states=()):
    """attentions: (mask, causal, scale, options), and (keys, values, used) of a cache."""
    attentions = [(*x, None) if len(x) == 4 else x for x in attentions]
    return program.run(list(values), list(vectors), attentions, list(states), threads)


def linear(x, matrix, bias=None, activation=None, residual=None, activations="float32"):
    return headlane.linear(x, matrix, bias, activation=activation, residual=residual, activations=activations)


def convolved(x, weight, bias, activation, state=None):
    """And what a cache of transformers keeps: the last inputs, as many as the weight has columns."""
    if state is None:
        return headlane.causal_convolution(x, weight, bias, activation=activation), None
    width = weight.shape[1]
    kept = torch.cat((state, x.mT), 2)[..., x.shape[1] :]
    assert kept.shape[2] == width
    read = state[..., 1:].float().clone()
    made = headlane.causal_convolution(x, weight, bias, activation=activation, state=read)
    assert read.to(x.dtype).equal(kept[..., 1:])
    return made, kept


def heads_of(x, column, heads, dim):
    return x[..., column : column + heads * dim].unflatten(-1, (heads, dim)).transpose(1, 2)


def attended(inputs, columns, gates, vectors, sizes, eps, state=None):
    """Linear attention of some columns of queries, keys and values. The state is written."""
    heads, key_heads, dim, value_dim = sizes
    numbers = key_heads, key_heads, heads
    q, k, v = (heads_of(x, *of) for x, of in zip(inputs, zip(columns, numbers, (dim, dim, value_dim))))
    decay, beta = (x.float() for x in gates)
    if decay.shape[-1] != heads:
        decay = decay.unflatten(-1, (heads, dim))
    a_log, dt_bias = vectors
    made = headlane.linear_attention(
        q,
        k,
        v,
        decay.transpose(1, 2),
        beta.transpose(1, 2),
        state=state,
        a_log=a_log,
        dt_bias=dt_bias if len(dt_bias) == heads else dt_bias.view(heads, dim),
        normalize=True,
        eps=eps,
    )
    return made.transpose(1, 2).flatten(2)


def gated_norm(x, gate, weight, eps, activation, dim):
    """Of each head. The norm is rounded, and its product with the activation, which is in float32."""
    rows = headlane.rms_norm(x.unflatten(-1, (-1, dim)), weight, eps).flatten(-2)
    return (rows.float() * getattr(headlane, activation)(gate.float())).to(x.dtype)
