"""headlane.torch: layers of decoders as a few calls, with a cache, and the bits of their modules one by one."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
import headlane.torch  # noqa: E402
from decoder_cases import (  # noqa: E402
    AVERAGES,
    CACHE,
    IDS,
    INPUTS,
    MODELS,
    check_modules,
    claims_in,
    close,
    entries,
    made,
    real,
    same,
    steps,
)
from headlane.torch import _fused, _operations  # noqa: E402
from torch_cases import normal, seeded  # noqa: E402

transformers.logging.set_verbosity_error()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("given", INPUTS, ids=["whole", "padded"])
@torch.no_grad()
def test_layers(name, given, decoder_runs, monkeypatch):
    model = made(name)
    optimized = headlane.torch.optimize(model)
    first, first_cache = steps(optimized, given)  # whose plans are made
    decoder_runs.clear()
    with monkeypatch.context() as context:
        claims = claims_in(context)
        result, cache = steps(optimized, given)
    assert [len(plan.steps) for plan in decoder_runs] == [MODELS[name][1]] * 2 * 4
    assert [len(plan.with_room) for plan in decoder_runs] == [MODELS[name][1] - 2] * 2 * 4
    assert all(plan.is_deep for plan in decoder_runs)
    assert sum(claims) == 2 * 2  # the first token after the prompt finds no room
    expected, expected_cache = steps(model, given)
    compared = given if name in AVERAGES else {}
    close(real(result, compared), real(expected, compared))
    close(real(entries(cache), compared), real(entries(expected_cache), compared))
    assert same(result, first)
    assert same(entries(cache), entries(first_cache))
    check_modules(monkeypatch, (result, cache), entries, steps, optimized, given)
    headlane.torch.restore(optimized)
    assert same(steps(optimized, given)[0], expected)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@torch.no_grad()
def test_16_bits(name, dtype, decoder_runs, monkeypatch):
    """Each operation has the roundings that it has in its module."""
    model = made(name).to(dtype)
    optimized = headlane.torch.optimize(model)
    for given in INPUTS:
        steps(optimized, given)
        decoder_runs.clear()
        result, cache = steps(optimized, given)
        assert [len(plan.with_room) for plan in decoder_runs] == [MODELS[name][1] - 2] * 8
        check_modules(monkeypatch, (result, cache), entries, steps, optimized, given)
        expected = real(steps(model, given)[0], given)
        error = max((x - y).abs().max() for x, y in zip(real(result, given), expected))
        assert error <= 32 * torch.finfo(dtype).eps * max(x.abs().max() for x in expected)


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_without_a_cache(name):
    model = made(name)
    optimized = headlane.torch.optimize(model)
    for _ in range(2):
        for given in INPUTS:
            ours, theirs = (each(**given, use_cache=False).logits for each in (optimized, model))
            compared = given if name in AVERAGES else {}
            close(real([ours], compared), real([theirs], compared))


@pytest.mark.parametrize(
    ("weights", "activations"), [("int8", None), ("int8", "int8"), ("int4_group32", None)]
)
@torch.no_grad()
def test_fewer_bits(weights, activations, decoder_runs, monkeypatch):
    optimized = headlane.torch.optimize(made("Llama"), weights=weights, activations=activations)
    steps(optimized, INPUTS[0])
    decoder_runs.clear()
    result, cache = steps(optimized, INPUTS[0])
    assert len(decoder_runs) == 8
    check_modules(monkeypatch, (result, cache), entries, steps, optimized, INPUTS[0])


@torch.no_grad()
def test_a_prompt_is_the_tokens_one_by_one():
    optimized = headlane.torch.optimize(made("Llama"))
    for _ in range(2):
        whole = optimized(IDS).logits
        cache = transformers.DynamicCache()
        alone = [optimized(IDS[:, i : i + 1], **{CACHE: cache}).logits for i in range(9)]
        assert whole.equal(torch.cat(alone, 1))
        assert whole[:1].equal(optimized(IDS[:1]).logits)


class Shifted(transformers.models.llama.modeling_llama.LlamaDecoderLayer):
    """A layer whose result is added to a tensor that may be repeated."""

    def forward(self, x, shift, position_embeddings, cache=None):
        mixed, _ = self.self_attn(x, position_embeddings, None, **{CACHE: cache})
        return self.mlp(x + mixed) + shift


@torch.no_grad()
def test_sums_that_repeat_rows():
    """Such a layer is no plan: its sum may not fit in a later call, after the cache was changed."""
    layer = seeded(Shifted, headlane.torch.optimize(made("Llama")).config, 0)  # whose attention is headlane's
    optimized = headlane.torch.optimize(layer)
    for batch in (1, 1, 2):
        x, shift = normal(batch, 5, 32), normal(1, 5, 32, seed=1)
        tables = (normal(1, 5, 8, seed=2), normal(1, 5, 8, seed=3))
        ours, theirs = transformers.DynamicCache(), transformers.DynamicCache()
        close([optimized(x, shift, tables, ours)], [layer(x, shift, tables, theirs)])
        close(entries(ours), entries(theirs))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["Llama", "Mistral window", "GPT2", "Qwen3"])
@torch.no_grad()
def test_layers_called_without_a_mask(name, attention):
    """With "sdpa" the module says whether they are causal, and there are no windows; with "eager" they are not."""
    model = made(name)
    model.set_attn_implementation(attention)
    optimized = headlane.torch.optimize(model)
    x = normal(2, 9, model.config.hidden_size)

    def results(each, is_causal):
        given = {"attention_mask": None}
        if name == "GPT2":
            layer = each.transformer.h[0]
            attention_of_layer = layer.attn
        else:
            layer = each.model.layers[0]
            attention_of_layer = layer.self_attn
            given["position_embeddings"] = each.model.rotary_emb(x, torch.arange(9)[None])
        attention_of_layer.is_causal = is_causal
        return layer(x, **given), attention_of_layer(x, **given)[0]

    found = []
    for is_causal in (True, True, True, False, False):  # with plans, and when they no longer apply
        ours, theirs = (results(each, is_causal) for each in (optimized, model))
        close(ours, theirs)
        found.append(ours[0])
    assert found[0].equal(found[1])
    assert found[1].equal(found[2])
    assert (attention == "sdpa") != bool(torch.isclose(found[2], found[3], rtol=0, atol=1e-3).all())


@pytest.mark.parametrize("name", ["Llama", "Mistral window", "Phi3"])
@torch.no_grad()
def test_layers_called_without_a_mask_with_a_cache(name):
    model = made(name)
    optimized = headlane.torch.optimize(model)
    for _ in range(2):
        caches, position = [transformers.DynamicCache(config=model.config) for _ in range(2)], 0
        for length in (3, 2, 1, 1, 4, 1, 2):
            x, places = normal(2, length, 32, seed=position), torch.arange(position, position + length)[None]
            options = {"position_embeddings": model.model.rotary_emb(x, places), "position_ids": places}
            results = [
                each.model.layers[0](x, **options, **{CACHE: cache})
                for each, cache in zip((optimized, model), caches, strict=True)
            ]
            close(results[:1], results[1:])
            position += length
        close(*map(entries, caches))


def test_layers_called_without_a_mask_for_gradients():
    """They run their own code, and attend to the same keys."""
    model = made("Llama")
    optimized = headlane.torch.optimize(model)
    x = normal(2, 9, 32)
    tables = model.model.rotary_emb(x, torch.arange(9)[None])
    with torch.no_grad():
        expected = optimized.model.layers[0](x, position_embeddings=tables)
    gradients = []
    for each in (model, optimized):
        given = x.clone().requires_grad_()
        result = each.model.layers[0](given, position_embeddings=tables)
        result.square().sum().backward()
        close([result.detach()], [expected])
        gradients.append(given.grad)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("fault", ["raises", "another number", "another key"])
@torch.no_grad()
def test_a_plan_that_is_wrong(fault, monkeypatch):
    """It is found in the first call, whose result and cache are right."""
    model = made("Llama")
    optimized = headlane.torch.optimize(model)
    run, heads = _fused.Plan.run, _operations.heads_of

    def wrong(plan, inputs):
        result = run(plan, inputs)
        if len(inputs) < 4 or isinstance(result, tuple):
            return result
        if fault == "raises":
            raise ValueError
        return result + 0.01 if fault == "another number" else result

    def wrong_heads(x, columns, head_dim):
        return heads(x, columns, head_dim) + (0.01 if x.shape[-1] == 16 and fault == "another key" else 0)

    monkeypatch.setattr(_fused.Plan, "run", wrong)
    monkeypatch.setattr(_operations, "heads_of", wrong_heads)
    for _ in range(3):
        ours, theirs = steps(optimized, INPUTS[1]), steps(model, INPUTS[1])
        close(ours[0], theirs[0])
        close(entries(ours[1]), entries(theirs[1]))


@torch.no_grad()
def test_mixtures(decoder_runs):
    """Hooks of modules in them are called, and results of their routers are found."""
    model = made("Mixtral")
    optimized = headlane.torch.optimize(model)
    first, _ = steps(optimized, INPUTS[0])
    mixture = next(x for x in optimized.modules() if hasattr(x, "experts"))
    seen = []
    hooks = [x.register_forward_hook(lambda *call: seen.append(call)) for x in mixture.children()]
    decoder_runs.clear()
    assert same(steps(optimized, INPUTS[0])[0], first)
    assert (len(decoder_runs), len(seen)) == (2 * 4, len(hooks) * 4)
    hooks.append(mixture.register_forward_hook(lambda module, given, result: 2 * result))
    decoder_runs.clear()
    assert not same(steps(optimized, INPUTS[0])[0], first)
    assert len({id(x) for x in decoder_runs}) == 2  # the layer's attention, and the other layer
    for hook in hooks:
        hook.remove()
    assert same(steps(optimized, INPUTS[0])[0], first)
    ours, theirs = (each(**INPUTS[0], output_router_logits=True) for each in (optimized, model))
    assert len(ours.router_logits) == 2
    close([ours.logits, *ours.router_logits], [theirs.logits, *theirs.router_logits])


@torch.no_grad()
def test_generation():
    for name in MODELS:
        model = made(name)
        optimized = headlane.torch.optimize(model)
        for options in ({}, {"num_beams": 3}):
            ours, theirs = (
                each.generate(**INPUTS[1], max_new_tokens=12, do_sample=False, **options)
                for each in (optimized, model)
            )
            assert ours.equal(theirs)
