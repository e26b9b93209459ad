"""What tests of decoders in headlane.torch have in common: comparisons, and whether caches had room."""

import torch
from headlane.torch import _fused
from headlane.torch._cache import GROWING


def same(one, other):
    return len(one) == len(other) and all(x.equal(y) for x, y in zip(one, other))


def close(one, other):
    for x, y in zip(one, other, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=2e-5)


def check_modules(monkeypatch, result, entries, steps, *arguments):
    """The logits of steps(), and what its cache has, are those of the modules one by one."""
    with monkeypatch.context() as context:
        context.setattr(_fused.Plan, "applies", lambda plan: not plan.is_deep)
        logits, cache = steps(*arguments)
    assert same(result[0], logits)
    assert same(entries(result[1]), entries(cache))


def real(tensors, given):
    """Of logits or entries of a cache what belongs to tokens, not to padding, whose rows attend to nothing."""
    mask = given.get("attention_mask")
    if mask is None or tensors[0].dim() == 4:
        return tensors if mask is None else [x[1:] for x in tensors]
    return [tensors[0][mask.bool()], *tensors[1:]]


def claims_in(context):
    """Whether each layer of a cache that was asked had room."""
    claims = []
    for kind in GROWING.values():

        def claim(layer, count, claim=kind.claim):
            made = claim(layer, count)
            claims.append(made is not None)
            return made

        context.setattr(kind, "claim", claim)
    return claims
