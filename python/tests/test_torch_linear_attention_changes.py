"""Layers with linear attention as one call, whose parts change, or which run otherwise."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("transformers.models.qwen3_5", reason="transformers is too old")
from decoder_cases import CACHE  # noqa: E402
from recurrent_models import (  # noqa: E402
    ONE_OF_EACH,
    Runs,
    cache_of,
    made,
    mixer_of,
    optimized_of,
    step,
    tokens,
)
from torch_cases import normal  # noqa: E402


@pytest.fixture
def runs(monkeypatch):
    return Runs(monkeypatch)


CHANGES = {
    "A_log in place": lambda m: m.A_log.mul_(0.5),
    "dt_bias in place": lambda m: m.dt_bias.add_(0.5),
    "convolution in place": lambda m: m.conv1d.weight.mul_(0.5),
    "A_log": lambda m: setattr(m, "A_log", torch.nn.Parameter(m.A_log * 0.5, requires_grad=False)),
    "dt_bias": lambda m: setattr(m, "dt_bias", torch.nn.Parameter(m.dt_bias + 1, requires_grad=False)),
    "convolution": lambda m: setattr(
        m.conv1d, "weight", torch.nn.Parameter(m.conv1d.weight * 2, requires_grad=False)
    ),
    "norm in place": lambda m: m.norm.weight.mul_(0.5),
    "eps": lambda m: setattr(m.norm, "variance_epsilon", 0.5),
    "bias": lambda m: setattr(
        m.conv1d, "bias", torch.nn.Parameter(torch.ones(len(m.conv1d.weight)), requires_grad=False)
    ),
    "data": lambda m: setattr(m.dt_bias, "data", m.dt_bias.data + 2),
    "activation": lambda m: setattr(m, "activation", "relu"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("model_type", ONE_OF_EACH)
@torch.no_grad()
def test_changed_parts(model_type, change):
    """As the model that is changed alike."""
    plain, model = made(model_type), optimized_of(model_type)
    caches = [step(x, tokens())[1] for x in (plain, model)]
    before = step(model, tokens())[0]
    for one in (plain, model):
        CHANGES[change](mixer_of(one, 1))
    assert not torch.allclose(step(model, tokens())[0], before, rtol=1e-3)
    for ids in (tokens(length=1), tokens(length=5, seed=2)):
        expected, got = (step(x, cache, ids)[0] for x, cache in zip((plain, model), caches))
        assert (got - expected).abs().max() <= 2e-4 * expected.abs().max()


@pytest.mark.parametrize("model_type", ONE_OF_EACH)
@torch.no_grad()
def test_hooks_see_calls(model_type, runs):
    model = optimized_of(model_type)
    expected, seen = model(tokens()).logits, []
    attention = mixer_of(model, 1)
    handles = [
        x.register_forward_hook(lambda *call: seen.append(call[0])) for x in (attention, attention.norm)
    ]
    got = model(tokens()).logits
    assert seen == [attention.norm, attention]
    assert (got - expected).abs().max() <= 2e-4 * expected.abs().max()
    for handle in handles:
        handle.remove()
    runs.since()
    assert torch.equal(model(tokens()).logits, expected)
    assert runs.since() == (3, 0)


@pytest.mark.parametrize("model_type", ONE_OF_EACH)
def test_gradients(model_type):
    model = optimized_of(model_type)
    attention = mixer_of(model, 1)
    for parameter in (attention.A_log, attention.conv1d.weight, attention.norm.weight):
        parameter.requires_grad_()
        model(tokens()).logits.sum().backward()
        assert parameter.grad is not None
        parameter.requires_grad_(False)
        with torch.no_grad():
            assert not model(tokens()).logits.requires_grad


@pytest.mark.parametrize("model_type", ONE_OF_EACH)
@torch.no_grad()
def test_caches_that_record_the_past(model_type, runs):
    """Those are the code's, which keeps states of before."""
    model, plain = optimized_of(model_type), made(model_type)
    caches = [cache_of(x) for x in (plain, model)]
    for cache in caches:
        cache.activate_past_recording()
    runs.since()
    for ids in (tokens(), tokens(length=3, seed=4), tokens(length=1, seed=5)):
        expected, got = (step(x, cache, ids)[0] for x, cache in zip((plain, model), caches))
        assert (got - expected).abs().max() <= 2e-4 * expected.abs().max()
        shapes = [[x.conv_states[0].shape for x in cache.layers[:3]] for cache in caches]
        assert shapes[0] == shapes[1]
    assert runs.since()[0] == 0


@pytest.mark.parametrize("model_type", ONE_OF_EACH)
@torch.no_grad()
def test_static_caches(model_type):
    model, plain = optimized_of(model_type), made(model_type)
    options = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "cache_implementation": "static"}
    one, two = (x.generate(tokens(), **options) for x in (plain, model))
    assert torch.equal(one, two)


@pytest.mark.parametrize("model_type", ONE_OF_EACH)
@torch.no_grad()
def test_other_numbers_of_sequences(model_type):
    """As PyTorch's code, which does not take them either, and states are as before."""
    model = optimized_of(model_type)
    _, cache = step(model, tokens())
    before = [x.clone() for y in cache.layers[:3] for x in (y.conv_states[0], y.recurrent_states[0])]
    layer, tables = model.model.layers[0], (normal(3, 1, 16),) * 2
    with pytest.raises((RuntimeError, ValueError)):
        layer(normal(3, 1, 32), position_embeddings=tables, **{CACHE: cache})
    after = [x for y in cache.layers[:3] for x in (y.conv_states[0], y.recurrent_states[0])]
    assert all(map(torch.equal, before, after))
