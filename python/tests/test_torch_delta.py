"""Layers with linear attention as one call: their plans, which have the same bits in any batch and cut."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("transformers.models.qwen3_5", reason="transformers is too old")
import headlane.torch  # noqa: E402
from decoder_cases import CACHE  # noqa: E402
from headlane.torch import _recurrent  # noqa: E402
from headlane.torch._fused import Fused  # noqa: E402
from headlane.torch._plan import Plan  # noqa: E402
from test_torch_recurrent import MODELS, PLANNED, made, tokens  # noqa: E402
from torch_cases import normal  # noqa: E402

NAMES = sorted(PLANNED)
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def cache_of(model):
    return transformers.DynamicCache(config=model.config)


def optimized_of(model_type, dtype=torch.float32):
    """With the plans of its layers, which are made in the first calls."""
    model = headlane.torch.optimize(made(model_type).to(dtype))
    with torch.no_grad():
        step(model, step(model, tokens())[1], tokens(length=1))
    return model


def step(model, given, ids=None, **options):
    """Logits and the cache; given: a cache, or tokens before any."""
    cache, ids = (cache_of(model), given) if ids is None else (given, ids)
    return model(ids, **{CACHE: cache}, **options).logits, cache


def layers_of(model):
    """Layers with linear attention: the first three of four."""
    found = [x for x in model.modules() if isinstance(x, Fused) and type(x).__name__.endswith("DecoderLayer")]
    assert len(found) == 4
    return found[:3]


class Runs:
    """Which results plans with linear attention had, and how often PyTorch's code ran instead."""

    def __init__(self, monkeypatch):
        self.plans = self.codes = 0
        run, rule = Plan.run, _recurrent.headlane.linear_attention

        def planned(plan, inputs):
            made = run(plan, inputs)
            self.plans += plan.asks_if_single and made is not NotImplemented
            return made

        def called(*arguments, **options):
            self.codes += 1
            return rule(*arguments, **options)

        monkeypatch.setattr(Plan, "run", planned)
        monkeypatch.setattr(_recurrent.headlane, "linear_attention", called)

    def since(self):
        found = self.plans, self.codes
        self.plans = self.codes = 0
        return found


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
    for ids in (tokens(), tokens(length=1), tokens(length=4), tokens(length=1)):
        logits, expected = (step(x, cache, ids)[0] for x, cache in zip((model, code), caches))
        assert (logits - expected).abs().max() <= limit * expected.abs().max()
    for number, layer in enumerate(layers_of(model)):
        plans = layer._headlane.plans.values()
        assert [len(x.steps) for x in plans] == [1, 1]
        ours, theirs = (x.layers[number] for x in caches)
        assert ours.conv_states[0].dtype is dtype
        assert ours.recurrent_states[0].dtype is torch.float32
        for name in ("conv_states", "recurrent_states"):
            one, other = (getattr(x, name)[0] for x in (ours, theirs))
            assert (one - other).abs().max() <= limit * other.abs().max()
    runs.since()
    step(model, caches[0], tokens(length=1))
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
    padded = {"attention_mask": mask, "position_ids": (mask.cumsum(1) - 1).clamp(0)}
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
            parts.append(step(model, cache, ids[:, begin:end])[0])
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
    name = "qwen3_5_text"
    for dim in ("linear_key_head_dim", "linear_value_head_dim"):
        torch.manual_seed(0)
        config = transformers.AutoConfig.for_model(name, **{**MODELS[name][0], dim: 513})
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        optimized = headlane.torch.optimize(model)
        expected, got = (step(x, tokens())[0] for x in (model, optimized))
        assert (got - expected).abs().max() <= 2e-4 * expected.abs().max()
    assert runs.since() == (0, 0)


@torch.no_grad()
def test_states_are_written_in_place():
    model = optimized_of("qwen3_5_text")
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


@torch.no_grad()
def test_caches_that_are_used_again():
    model = optimized_of("qwen3_5_text")
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
@torch.no_grad()
def test_changed_parts(change):
    """As the model that is changed alike."""
    plain, model = made("qwen3_5_text"), optimized_of("qwen3_5_text")
    caches = [step(x, tokens())[1] for x in (plain, model)]
    before = step(model, tokens())[0]
    for one in (plain, model):
        CHANGES[change](one.model.layers[1].linear_attn)
    assert not torch.allclose(step(model, tokens())[0], before, rtol=1e-3)
    for ids in (tokens(length=1), tokens(length=5, seed=2)):
        expected, got = (step(x, cache, ids)[0] for x, cache in zip((plain, model), caches))
        assert (got - expected).abs().max() <= 2e-4 * expected.abs().max()


@torch.no_grad()
def test_hooks_see_calls(runs):
    model = optimized_of("qwen3_5_text")
    expected, seen = model(tokens()).logits, []
    attention = model.model.layers[1].linear_attn
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


def test_gradients():
    model = optimized_of("qwen3_5_text")
    attention = model.model.layers[1].linear_attn
    for parameter in (attention.A_log, attention.conv1d.weight, attention.norm.weight):
        parameter.requires_grad_()
        model(tokens()).logits.sum().backward()
        assert parameter.grad is not None
        parameter.requires_grad_(False)
        with torch.no_grad():
            assert not model(tokens()).logits.requires_grad


@torch.no_grad()
def test_caches_that_record_the_past(runs):
    """Those are the code's, which keeps states of before."""
    model, plain = optimized_of("qwen3_5_text"), made("qwen3_5_text")
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


@torch.no_grad()
def test_static_caches():
    model, plain = optimized_of("qwen3_5_text"), made("qwen3_5_text")
    options = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "cache_implementation": "static"}
    one, two = (x.generate(tokens(), **options) for x in (plain, model))
    assert torch.equal(one, two)


@torch.no_grad()
def test_other_numbers_of_sequences():
    """As PyTorch's code, which does not take them either, and states are as before."""
    model = optimized_of("qwen3_5_text")
    _, cache = step(model, tokens())
    before = [x.clone() for y in cache.layers[:3] for x in (y.conv_states[0], y.recurrent_states[0])]
    with pytest.raises((RuntimeError, ValueError)):
        model.model.layers[0](normal(3, 1, 32), (normal(3, 1, 16),) * 2, **{CACHE: cache})
    after = [x for y in cache.layers[:3] for x in (y.conv_states[0], y.recurrent_states[0])]
    assert all(map(torch.equal, before, after))
