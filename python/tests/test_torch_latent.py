"""headlane.torch: layers whose cache holds what keys and values are computed from, as DeepSeek's latent attention."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
import headlane.torch  # noqa: E402
from decoder_cases import (  # noqa: E402
    CACHE,
    IDS,
    INPUTS,
    attention_of,
    close,
    entries,
    llama_with,
    real,
    same,
    steps,
)
from latent_cases import DENSE, MODELS, SIZES, made  # noqa: E402
from torch_cases import normal, seeded  # noqa: E402


@pytest.mark.parametrize("given", INPUTS, ids=["whole", "padded"])
@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_models(name, given, decoder_runs, known):
    model = made(name)
    expected, their_cache = steps(model, given)
    optimized = headlane.torch.optimize(model)
    for _ in range(2):
        decoder_runs.clear()
        known.clear()
        logits, cache = steps(optimized, given)
        close(real(logits, given), real(expected, given))
        close(real(entries(cache), given), real(entries(their_cache), given))
    assert known == [(n and n - 1, n or 9) for n in (0, 10, 11, 12) for _ in range(2)]
    assert [len(x.steps) for x in decoder_runs] == [MODELS[name][1]] * 8
    assert all(x.is_deep for x in decoder_runs)  # of layers


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_without_a_cache(name):
    """The first call, with a token, cannot tell what a mask does."""
    model = made(name)
    optimized = headlane.torch.optimize(model)
    for given in ({"input_ids": IDS[:, :1]}, *INPUTS):
        expected = model(**given, use_cache=False).logits
        close(real([optimized(**given, use_cache=False).logits], given), real([expected], given))


@torch.no_grad()
def test_one_pair_of_numbers_is_turned():
    model = seeded(
        transformers.AutoModelForCausalLM.from_config,
        transformers.DeepseekV2Config(**{**SIZES, **DENSE, "qk_rope_head_dim": 2}),
    )
    close(steps(headlane.torch.optimize(model), INPUTS[0])[0], steps(model, INPUTS[0])[0])


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_bits(name):
    """A prompt at once and token by token; a sequence alone and in a batch; with other numbers of threads."""
    model = headlane.torch.optimize(made(name))
    at_once, cache = model(IDS, use_cache=True).logits, None
    for i in range(IDS.shape[1]):
        step = model(IDS[:, i : i + 1], **{CACHE: cache}, use_cache=True)
        cache = step[CACHE]
        assert step.logits[:, 0].equal(at_once[:, i])
    assert model(IDS[1:], use_cache=True).logits.equal(at_once[1:])
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert model(IDS, use_cache=True).logits.equal(at_once)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["DeepseekV3", "DeepseekV2", "MiniCPM3"])
@torch.no_grad()
def test_16_bits(name, dtype, decoder_runs):
    model = made(name)
    expected = steps(model, INPUTS[0])[0]
    model.to(dtype)
    theirs = steps(model, INPUTS[0])[0]
    logits = steps(headlane.torch.optimize(model), INPUTS[0])[0]
    for x, their, right in zip(logits, theirs, expected):
        assert (x - right).abs().max() <= 2 * (their - right).abs().max()
    assert decoder_runs


@pytest.mark.parametrize("weights", ["bfloat16", "int8"])
@torch.no_grad()
def test_stored_weights(weights, known):
    model = made("DeepseekV3")
    rounded = copy.deepcopy(model)
    for x in rounded.modules():
        if isinstance(x, torch.nn.Linear):
            x.weight.copy_(torch.from_numpy(headlane.PackedMatrix(x.weight.T, dtype=weights).decoded().T))
    optimized = headlane.torch.optimize(model, weights=weights)
    for _ in range(2):
        close(steps(optimized, INPUTS[0])[0], steps(rounded, INPUTS[0])[0])
    assert known[-1] == (11, 12)


@torch.no_grad()
def test_modules_one_by_one(monkeypatch):
    """A layer has the bits of its modules."""
    model = headlane.torch.optimize(made("DeepseekV3"))
    for given in INPUTS:
        logits, cache = steps(model, given)
        with monkeypatch.context() as context:
            context.setattr("headlane.torch._fused.Plan.applies", lambda plan: not plan.is_deep)
            others, other = steps(model, given)
        assert same(logits, others)
        assert same(entries(cache), entries(other))


class Latent(torch.nn.Module):
    """Keys and values are halves of one product."""

    def __init__(self, config, layer):
        super().__init__()
        self.config, self.layer, self.is_causal = config, layer, True
        self.query = torch.nn.Linear(32, 32, bias=False)
        self.source, self.other = torch.nn.Linear(32, 12, bias=False), torch.nn.Linear(32, 4, bias=False)
        self.both, self.out = torch.nn.Linear(12, 64, bias=False), torch.nn.Linear(32, 32, bias=False)

    def forward(self, hidden_states, position_embeddings=None, attention_mask=None, **options):
        batch, length = hidden_states.shape[:-1]
        query = self.query(hidden_states).view(batch, length, -1, 8).transpose(1, 2)
        source = self.source(hidden_states).view(batch, 1, length, 12)
        other = self.other(hidden_states).view(batch, 1, length, 4)
        if options.get(CACHE) is not None:
            source, other = options[CACHE].update(source, other, self.layer)
        parts = torch.split(self.both(source), [32, 32], dim=-1)
        key, value = (x.view(batch, source.shape[2], -1, 8).transpose(1, 2) for x in parts)
        made, weights = attention_of(self, query, key, value, attention_mask)
        return self.out(made.reshape(batch, length, -1)), weights


@torch.no_grad()
def test_keys_and_values_of_one_product(known):
    model = llama_with(Latent)
    optimized = headlane.torch.optimize(model)
    for given in ({"input_ids": IDS[:, :1].expand(2, 1)}, *INPUTS):
        close(real(steps(optimized, given)[0], given), real(steps(model, given)[0], given))
    assert known[-1] == (11, 12)


def test_gradients():
    """With gradients the code of the module runs."""
    model = headlane.torch.optimize(made("DeepseekV3"))
    embedded = normal(2, 5, 32).requires_grad_()
    model(inputs_embeds=embedded, use_cache=True).logits.sum().backward()
    assert embedded.grad.isfinite().all()
    assert embedded.grad.abs().sum() > 0
