"""Linear attention and causal convolutions of transformers in models that are optimized."""

import copy
import io
import pickle

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
import headlane  # noqa: E402
import headlane.torch  # noqa: E402
from decoder_cases import CACHE  # noqa: E402
from headlane.torch import _recurrent, _recurrent_calls  # noqa: E402
from recurrent_models import DELTA, MODELS, PLANNED, made, tokens  # noqa: E402
from torch_cases import normal  # noqa: E402
from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: E402

pytestmark = pytest.mark.skipif("qwen3_5_text" not in CONFIG_MAPPING, reason="transformers is too old")


def modules_of(model):
    return [x for x in model.modules() if isinstance(x, _recurrent_calls.CallsRecurrent)]


class Counts:
    """How often headlane's functions are called."""

    def __init__(self, monkeypatch):
        self.attention = self.convolution = 0
        known = filter(CONFIG_MAPPING.__contains__, MODELS)
        for name in known:  # calls by which functions are found come first
            headlane.torch.optimize(made(name))
        for name, counter in (("linear_attention", "attention"), ("causal_convolution", "convolution")):
            function = getattr(headlane, name)
            monkeypatch.setattr(_recurrent.headlane, name, self._counted(function, counter))

    def _counted(self, function, counter):
        def counted(*arguments, **options):
            setattr(self, counter, getattr(self, counter) + 1)
            return function(*arguments, **options)

        return counted


@pytest.fixture
def counts(monkeypatch):
    return Counts(monkeypatch)


@pytest.mark.parametrize("model_type", MODELS)
@torch.no_grad()
def test_models(model_type, counts):
    model, names = made(model_type), MODELS[model_type][1]
    optimized = headlane.torch.optimize(model)
    found = modules_of(optimized)
    assert found
    assert {x for module in found for x in _recurrent_calls.route(module.headlane_original)} == names
    ids, mask = tokens(), torch.ones(2, 9, dtype=torch.long)
    mask[1, :4] = 0
    expected, got = (x(ids, attention_mask=mask).logits for x in (model, optimized))
    assert (got - expected).abs().max() < 1e-4 * expected.abs().max()
    calls = len(found)
    assert counts.convolution == calls
    assert counts.attention == calls * (len(names) > len(DELTA))
    options = {"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False, "output_logits": True}
    for more in ({}, {"num_beams": 3}):
        expected, got = (
            x.generate(ids, attention_mask=mask, return_dict_in_generate=True, **options, **more)
            for x in (model, optimized)
        )
        assert torch.equal(expected.sequences, got.sequences)
        if not more:
            for a, b in zip(expected.logits, got.logits, strict=True):
                assert (a - b).abs().max() < 1e-4 * a.abs().max()
    times = 2 if model_type in PLANNED else 17  # of several tokens, of one; then plans ran
    assert counts.convolution == calls * times
    assert counts.attention == calls * times * (len(names) > len(DELTA))


class Rule(torch.nn.Module):
    """Code that calls the functions itself."""

    def forward(self, q, k, v, g, beta, state=None):
        options = {"initial_state": state, "output_final_state": True, "use_qk_l2norm_in_kernel": True}
        return torch_recurrent_gated_delta_rule(q, k, v, g, beta, **options)


class Convolution(torch.nn.Module):
    def forward(self, x, weight, state=None):
        if state is None:
            return causal_conv1d_fn(x, weight, None, "silu")
        return causal_conv1d_update(x, state, weight, None, "silu")


def replaced(module):
    made = headlane.torch.optimize(torch.nn.Sequential(module).eval())[0]
    assert isinstance(made, _recurrent_calls.CallsRecurrent)
    return made


def some_tokens(length):
    given = [normal(2, length, 2, 8), normal(2, length, 2, 8, seed=1), normal(2, length, 4, 5, seed=2)]
    return [*given, -normal(2, length, 4, seed=3).abs(), normal(2, length, 4, seed=4).abs()]


@torch.no_grad()
def test_prefill_and_decoding_have_the_same_bits():
    rule, given = replaced(Rule()), some_tokens(70)
    expected, last = rule(*given)
    state, rows = None, []
    for t in range(70):
        row, state = rule(*(x[:, t : t + 1] for x in given), state)
        rows.append(row)
    assert torch.equal(torch.cat(rows, 1), expected)
    assert torch.equal(state, last)
    alone, _ = rule(*(x[1:] for x in given))
    assert torch.equal(alone, expected[1:])
    convolution, x, weight = replaced(Convolution()), normal(2, 20, 30), normal(20, 4, seed=1)
    expected = convolution(x, weight)
    for width in (3, 4):  # of the state: what later tokens read, and one more as caches have it
        state = torch.zeros(2, 20, width)
        rows = [convolution(x[:, :, t : t + 1], weight, state) for t in range(30)]
        assert torch.equal(torch.cat(rows, 2), expected)
        assert torch.equal(state, x[:, :, -width:])


@torch.no_grad()
def test_state_is_written_in_the_cache_alone():
    model = made("qwen3_5_text")
    optimized = headlane.torch.optimize(model)
    cache = transformers.DynamicCache(config=model.config)
    optimized(tokens(), **{CACHE: cache})
    before = cache.get_recurrent_state(0)
    kept, address = before.clone(), before.data_ptr()
    optimized(tokens(length=1, seed=2), **{CACHE: cache})
    after = cache.get_recurrent_state(0)
    assert after.data_ptr() == address
    assert not torch.equal(after, kept)

    rule, given, state = replaced(Rule()), some_tokens(3), normal(2, 4, 8, 5, seed=5)
    kept = state.clone()
    (expected, last), (got, ours) = Rule()(*given, state), rule(*given, state)
    assert torch.equal(state, kept)
    assert torch.allclose(got, expected, atol=1e-5)
    assert torch.allclose(ours, last, atol=1e-5)
    assert not torch.equal(ours, last)  # which PyTorch computed


def test_other_calls_are_pytorchs(counts):
    model = made("qwen3_5_text")
    with torch.no_grad():
        expected = model(tokens()).logits
    optimized = headlane.torch.optimize(model)
    with torch.no_grad():
        assert torch.equal(model(tokens()).logits, expected)  # a model that is not optimized
    assert counts.attention == counts.convolution == 0
    (module, *_) = modules_of(optimized)
    x = normal(1, 5, 32).requires_grad_()
    module(x).sum().backward()
    assert x.grad is not None
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        module(x)
    module.train()(normal(1, 5, 32))
    assert counts.attention == counts.convolution == 0
    module.eval()
    with torch.no_grad():
        module(normal(1, 5, 32))
    assert counts.attention == counts.convolution == 1


@torch.no_grad()
def test_copies_and_restore(counts):
    model = made("qwen3_5_text")
    expected = model(tokens()).logits
    optimized = headlane.torch.optimize(model)
    got = optimized(tokens()).logits
    file = io.BytesIO()
    torch.save(optimized, file)
    file.seek(0)
    copies = [
        copy.deepcopy(optimized),
        pickle.loads(pickle.dumps(optimized)),
        torch.load(file, weights_only=False),
    ]
    for each in copies:
        before = counts.attention
        assert torch.equal(each(tokens()).logits, got)
        assert counts.attention == before + 3
    headlane.torch.restore(optimized)
    before = counts.attention
    assert torch.equal(optimized(tokens()).logits, expected)
    assert counts.attention == before


@torch.no_grad()
def test_compiled_models_take_pytorchs_code(counts):
    optimized = headlane.torch.optimize(made("qwen3_5_text"))
    (module, *_) = modules_of(optimized)
    x = normal(1, 5, 32)
    expected = module(x)
    before = counts.attention
    got = torch.compile(module, backend="eager")(x)
    assert torch.allclose(got, expected, atol=1e-4 * float(expected.abs().max()))
    assert counts.attention == before


@pytest.mark.parametrize("model_type", ["qwen3_5_text", "kimi_linear", "mamba2", "lfm2"])
@torch.no_grad()
def test_bfloat16(model_type, counts):
    model = made(model_type)
    exact = model(tokens()).logits
    half = model.to(torch.bfloat16)
    theirs = half(tokens()).logits.float()
    optimized = headlane.torch.optimize(half)
    ours = optimized(tokens()).logits.float()
    assert counts.convolution == len(modules_of(optimized))
    assert (ours - exact).abs().max() <= 1.5 * (theirs - exact).abs().max() + 0.01 * exact.abs().max()
    options = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False}
    assert optimized.generate(tokens(), **options).shape == (2, 13)
    times = 2 if model_type in PLANNED else 5
    assert counts.convolution == times * len(modules_of(optimized))


def _is_named(q, k, v, g, beta, **options):
    """Of the same name and arguments, but without decays."""
    return ours(q, k, v, torch.zeros_like(g), beta, **options)


def test_functions_are_compared_not_only_named():
    class Other(torch.nn.Module):
        def forward(self, *given):
            return torch_chunk_gated_delta_rule(*given)

    other = headlane.torch.optimize(torch.nn.Sequential(Other()).eval())[0]
    assert type(other) is Other


def ours(*given, **options):
    return torch_recurrent_gated_delta_rule(*given, **options)


if "qwen3_5_text" in CONFIG_MAPPING:
    from transformers.models.qwen3_5.modeling_qwen3_5 import (
        causal_conv1d_fn,
        causal_conv1d_update,
        torch_recurrent_gated_delta_rule,
    )

    torch_chunk_gated_delta_rule = _is_named
