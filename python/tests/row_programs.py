"""Programs of operations on rows, and the same operations by functions of the package."""

import headlane
import torch

WIDTH, HIDDEN, HEADS = 24, 40, 3
TYPES = [torch.float32, torch.bfloat16, torch.float16]


def random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def packed(rows, columns, seed, dtype="float32"):
    return headlane.PackedMatrix(random(rows, columns, seed=seed), dtype=dtype)


def run(program, values, vectors=(), attentions=(), threads=1):
    """attentions: (mask, causal, scale, options), and (keys, values, used) of a cache."""
    attentions = [(*x, None) if len(x) == 4 else x for x in attentions]
    return program.run(list(values), list(vectors), attentions, threads)


def linear(x, matrix, bias=None, activation=None, residual=None, activations="float32"):
    return headlane.linear(x, matrix, bias, activation=activation, residual=residual, activations=activations)
