"""Layers with linear attention as one call: their plans, which have the same bits in any batch and cut."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("transformers.models.qwen3_5", reason="transformers is too old")
import headlane.torch  # noqa: E402
from recurrent_models import (  # noqa: E402
    OF_MAMBA2,
    ONE_OF_EACH,
    PLANNED,
    Runs,
    cache_of,
    layers_of,
    made,
    optimized_of,
    positions,
    step,
    tokens,
)

NAMES = sorted(PLANNED)
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture
def runs(monkeypatch):
    return Runs(monkeypatch)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("model_type", NAMES)
@torch.no_grad()
def test_plans(model_type, dtype, runs):
    """Each layer is one step, by plans of its own for one token; their states are those of the code."""
    model = headlane.torch.optimize(made(model_type).to(dtype))
    code = copy.deepcopy(model)
    for layer in layers_of(code):
        layer._headlane.stale = True  # it runs its own code
    caches = [cache_of(model), cache_of(model)]
    limit = {torch.float32: 2e-4, torch.bfloat16: 0.2, torch.float16: 0.05}[dtype]
    for ids, first in ((tokens(), 0), (tokens(length=1), 9), (tokens(length=4), 10), (tokens(length=1), 14)):
        logits, expected = (step(x, cache, ids, first)[0] for x, cache in zip((model, code), caches))
        assert (logits - expected).abs().max() <= limit * expected.abs().max()
    for number, layer in enumerate(layers_of(model)):
        plans = layer._headlane.plans.values()
        assert [len(x.steps) for x in plans] == [1, 1]
        ours, theirs = (x.layers[number] for x in caches)
        assert ours.conv_states[0].dtype is dtype
        assert ours.recurrent_states[0].dtype is torch.float32
        assert ours.recurrent_states[0].mT.is_contiguous() is (model_type in OF_MAMBA2)  # rows in one piece
        for name in ("conv_states", "recurrent_states"):
            one, other = (getattr(x, name)[0] for x in (ours, theirs))
            assert (one - other).abs().max() <= limit * other.abs().max()
    runs.since()
    step(model, caches[0], tokens(length=1), 15)
    assert runs.since() == (3, 0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("model_type", NAMES)
@torch.no_grad()
def test_same_bits(model_type, dtype, runs):
    """Of a sequence alone, in a batch, with padding, token by token, in parts, and with other threads."""
    model = optimized_of(model_type, dtype)
    ids = tokens(3, 70)
    mask = torch.ones_like(ids)
    mask[1, :13] = mask[2, :1] = 0
    padded = {"attention_mask": mask}
    if positions(model, 0, 1):
        padded["position_ids"] = (mask.cumsum(1) - 1).clamp(0)
    for each in ({}, padded):
        model(ids, **each)  # the first calls of these kinds
    runs.since()
    expected = model(ids).logits
    alone = torch.cat([model(ids[i : i + 1]).logits for i in range(3)])
    assert torch.equal(alone, expected)
    got = model(ids, **padded).logits
    assert torch.equal(got[1:2, 13:], model(ids[1:2, 13:]).logits)
    assert torch.equal(got[2:3, 1:], model(ids[2:3, 1:]).logits)
    for ends in (range(1, 71), (40, 41, 42, 70), (1, 70)):
        cache, parts, begin = cache_of(model), [], 0
        for end in ends:
            parts.append(step(model, cache, ids[:, begin:end], begin)[0])
            begin = end
        assert torch.equal(torch.cat(parts, 1), expected)
    before = torch.get_num_threads()
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            assert torch.equal(model(ids).logits, expected)
    finally:
        torch.set_num_threads(before)
    plans, codes = runs.since()
    assert plans == 3 * (1 + 3 + 3 + 70 + 4 + 2 + 2)
    assert codes == 0


@torch.no_grad()
def test_heads_that_are_too_large(runs):
    """Those of more than 512 elements are PyTorch's."""
    for dim in ("linear_key_head_dim", "linear_value_head_dim"):
        model = made("qwen3_5_text", **{dim: 513})
        optimized = headlane.torch.optimize(model)
        expected, got = (step(x, tokens())[0] for x in (model, optimized))
        assert (got - expected).abs().max() <= 2e-4 * expected.abs().max()
    assert runs.since() == (0, 0)


@pytest.mark.skipif("nemotron_h" not in PLANNED, reason="transformers is too old")
@torch.no_grad()
def test_limits_of_steps(runs):
    """As in the code: of prompts, those of one token too, but not of tokens after them."""
    model = made("nemotron_h", time_step_min=0.5)
    optimized = headlane.torch.optimize(made("nemotron_h", time_step_min=0.5))
    for _ in range(2):  # the first calls, and those of the plans
        for length in (1, 9):
            runs.since()
            pairs = [step(x, tokens(length=length)) for x in (model, optimized)]
            later = [
                step(x, cache, tokens(length=1), length)[0]
                for x, (_, cache) in zip((model, optimized), pairs)
            ]
            for expected, got in ([x for x, _ in pairs], later):
                assert (got - expected).abs().max() <= 2e-4 * expected.abs().max()
    assert runs.since() == (6, 0)


@pytest.mark.parametrize("model_type", ONE_OF_EACH)
@torch.no_grad()
def test_states_are_written_in_place(model_type):
    model = optimized_of(model_type)
    _, cache = step(model, tokens())
    layer = cache.layers[0]
    held = [layer.conv_states[0], layer.recurrent_states[0]]
    before = [x.clone() for x in held]
    versions = [x._version for x in held]
    step(model, cache, tokens(length=1))
    assert layer.conv_states[0] is held[0]
    assert layer.recurrent_states[0] is held[1]
    assert not any(x.equal(y) for x, y in zip(held, before))
    assert torch.equal(held[0][..., :-1], before[0][..., 1:])
    assert all(x._version > y for x, y in zip(held, versions))


@pytest.mark.parametrize("model_type", ONE_OF_EACH)
@torch.no_grad()
def test_caches_that_are_used_again(model_type):
    model = optimized_of(model_type)
    ids = tokens(length=6)
    expected, cache = step(model, ids)
    cache.reset()
    for layer in cache.layers[:3]:
        assert not layer.has_previous_state[0]
    again = cache_of(model)
    again.layers[:3] = cache.layers[:3]
    assert torch.equal(step(model, again, ids)[0], expected)
    other = copy.deepcopy(again)
    one, two = (step(model, x, tokens(length=1))[0] for x in (again, other))
    assert torch.equal(one, two)
    again.reorder_cache(torch.tensor([1, 0]))
    other.reorder_cache(torch.tensor([0, 1]))
    one, two = (
        step(model, x, y)[0] for x, y in ((again, tokens(length=1).flip(0)), (other, tokens(length=1)))
    )
    assert torch.equal(one.flip(0), two)
