"""Programs of operations on rows, and the same operations by functions of the package."""

import headlane
import pytest
import torch
from headlane import _core

WIDTH, HIDDEN, HEADS = 24, 40, 3
NO_LIMITS = (0.0, float("inf"))  # of Mamba-2's steps
TYPES = [torch.float32, torch.bfloat16, torch.float16]


def random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def packed(rows, columns, seed, dtype="float32", scale=1.0):
    return headlane.PackedMatrix(scale * random(rows, columns, seed=seed), dtype=dtype)


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


def scanned(inputs, columns, dt, vectors, sizes, state=None, limits=NO_LIMITS):
    """Mamba-2 of some columns of C, B and x. The state, [batch, heads, head_dim, state_size], is written."""
    heads, groups, state_size, dim = sizes
    numbers = groups, groups, heads
    c, b, x = (
        heads_of(y, *of) for y, of in zip(inputs, zip(columns, numbers, (state_size, state_size, dim)))
    )
    a_log, dt_bias, skip = vectors
    of_rows = None if state is None else state.mT.contiguous()
    options = {"a_log": a_log, "dt_bias": dt_bias, "discretize": True, "skip": skip, "scale": 1.0}
    options |= dict(zip(("min_step", "max_step"), limits))
    made = headlane.linear_attention(c, b, x, dt.float().transpose(1, 2), state=of_rows, **options)
    if state is not None:
        state.copy_(of_rows.mT)
    return made.transpose(1, 2).flatten(2)


def gated_norm(x, gate, weight, eps, activation, dim, gate_first=False):
    """Of each head. The norm is rounded, and its product with the activation, which is in float32; with gate_first
    only the norm of a product is.
    """
    factors = getattr(headlane, activation)(gate.float())
    if not gate_first:
        rows = headlane.rms_norm(x.unflatten(-1, (-1, dim)), weight, eps).flatten(-2)
        return (rows.float() * factors).to(x.dtype)
    groups = (x.float() * factors).split(dim, -1)
    weights = [None] * len(groups) if weight is None else weight.split(dim)
    return torch.cat([headlane.rms_norm(y, of, eps) for y, of in zip(groups, weights)], -1).to(x.dtype)


def refuses(given, name, change, message):
    """Whether a program of one value takes an operation, but not with this change."""
    program = _core.RowProgram(1)
    with pytest.raises(ValueError, match=f"RowProgram: .*{message}"):
        getattr(program, name)(**{**given, **change})
    getattr(program, name)(**given)
