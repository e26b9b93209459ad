"""headlane.torch: layers of decoders as a few calls, with a cache, and the bits of their modules one by one."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
import headlane.torch  # noqa: E402
from decoder_cases import AVERAGES, MODELS, check_modules, claims_in, close, made, real, same  # noqa: E402
from headlane.torch import _fused, _operations  # noqa: E402
from torch_cases import normal, seeded  # noqa: E402

transformers.logging.set_verbosity_error()
IDS = torch.arange(3, 21).view(2, 9)
PADDED = torch.tensor([[0] * 4 + [1] * 5, [1] * 9])
INPUTS = [{"input_ids": IDS}, {"input_ids": IDS, "attention_mask": PADDED}]


def steps(model, given, cache=None, count=3):
    """Logits of a prompt and of tokens one by one, and the cache."""
    given, logits = dict(given), []
    cache = transformers.DynamicCache(config=model.config) if cache is None else cache
    for token in range(count + 1):
        logits.append(model(**given, past_key_values=cache, use_cache=True).logits)
        given["input_ids"] = torch.tensor([[7 + token], [8 + token]])
        if "attention_mask" in given:
            mask = given["attention_mask"]
            given["attention_mask"] = torch.cat((mask, mask.new_ones(2, 1)), 1)
    return logits, cache


def entries(cache):
    return [x for layer in cache.layers for x in (layer.keys, layer.values)]


@pytest.fixture
def runs(monkeypatch):
    """Which plans with an update of a cache were run."""
    seen, run = [], _fused.Plan.run

    def watched(plan, inputs):
        if any(not isinstance(x, torch.Tensor) for x in inputs):
            seen.append(plan)
        return run(plan, inputs)

    monkeypatch.setattr(_fused.Plan, "run", watched)
    return seen


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("given", INPUTS, ids=["whole", "padded"])
@torch.no_grad()
def test_layers(name, given, runs, monkeypatch):
    model = made(name)
    optimized = headlane.torch.optimize(model)
    first, first_cache = steps(optimized, given)  # whose plans are made
    runs.clear()
    with monkeypatch.context() as context:
        claims = claims_in(context)
        result, cache = steps(optimized, given)
    assert [len(plan.steps) for plan in runs] == [MODELS[name][1]] * 2 * 4
    assert [len(plan.with_room) for plan in runs] == [MODELS[name][1] - 2] * 2 * 4
    assert all(plan.is_deep for plan in runs)
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
def test_16_bits(name, dtype, runs, monkeypatch):
    """Each operation has the roundings that it has in its module."""
    model = made(name).to(dtype)
    optimized = headlane.torch.optimize(model)
    for given in INPUTS:
        steps(optimized, given)
        runs.clear()
        result, cache = steps(optimized, given)
        assert [len(plan.with_room) for plan in runs] == [MODELS[name][1] - 2] * 8
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
def test_fewer_bits(weights, activations, runs, monkeypatch):
    optimized = headlane.torch.optimize(made("Llama"), weights=weights, activations=activations)
    steps(optimized, INPUTS[0])
    runs.clear()
    result, cache = steps(optimized, INPUTS[0])
    assert len(runs) == 8
    check_modules(monkeypatch, (result, cache), entries, steps, optimized, INPUTS[0])


@torch.no_grad()
def test_a_prompt_is_the_tokens_one_by_one():
    optimized = headlane.torch.optimize(made("Llama"))
    for _ in range(2):
        whole = optimized(IDS).logits
        cache = transformers.DynamicCache()
        alone = [optimized(IDS[:, i : i + 1], past_key_values=cache).logits for i in range(9)]
        assert whole.equal(torch.cat(alone, 1))
        assert whole[:1].equal(optimized(IDS[:1]).logits)


@torch.no_grad()
def test_copies_of_a_cache():
    """Two continuations of a prompt, from its cache and a copy of it."""
    model = made("GPT2")
    optimized = headlane.torch.optimize(model)
    expected = [steps(model, {"input_ids": x}, steps(model, INPUTS[0])[1])[0] for x in (IDS, IDS.flip(1))]
    for copied in (copy.deepcopy, copy.copy):
        _, cache = steps(optimized, INPUTS[0])
        other = copied(cache)
        if copied is copy.copy:
            other.layers = [copy.copy(x) for x in cache.layers]
        before = [x.clone() for x in entries(cache)]
        one = steps(optimized, {"input_ids": IDS}, other)[0]
        assert same(entries(cache), before)
        two = steps(optimized, {"input_ids": IDS.flip(1)}, cache)[0]
        close(one, expected[0])
        close(two, expected[1])


class Shifted(transformers.models.llama.modeling_llama.LlamaDecoderLayer):
    """A layer whose result is added to a tensor that may be repeated."""

    def forward(self, x, shift, position_embeddings, cache=None):
        mixed, _ = self.self_attn(x, position_embeddings, None, past_key_values=cache)
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


class Packed(transformers.models.llama.modeling_llama.LlamaDecoderLayer):
    """A layer that is given its cache in a tuple."""

    def forward(self, x, position_embeddings, state=None):
        cache = None if state is None else state[0]
        mixed, _ = self.self_attn(x, position_embeddings, None, past_key_values=cache)
        return self.mlp(x + mixed)


@torch.no_grad()
def test_a_cache_in_a_tuple(runs):
    """It is appended to once in each call, the first one as well."""
    layer = seeded(Packed, headlane.torch.optimize(made("Llama")).config, 0)
    optimized = headlane.torch.optimize(layer)
    ours, theirs = transformers.DynamicCache(), transformers.DynamicCache()
    x, tables = normal(2, 5, 32), (normal(1, 5, 8, seed=2), normal(1, 5, 8, seed=3))
    for _ in range(3):
        close([optimized(x, tables, (ours,))], [layer(x, tables, (theirs,))])
        close(entries(ours), entries(theirs))
    assert entries(ours)[0].shape[2] == 15
    assert runs


class OwnCache(transformers.DynamicCache):
    """One that counts its updates."""

    updates = 0

    def update(self, *arguments, **options):
        self.updates += 1
        return super().update(*arguments, **options)


@pytest.mark.parametrize("make", [OwnCache, lambda: transformers.StaticCache(made("Llama").config, 40)])
@torch.no_grad()
def test_other_caches(make, runs, monkeypatch):
    """No plan is made for them, as they cannot be copied by those who do not know them."""
    model = made("Llama")
    optimized = headlane.torch.optimize(model)
    recorded, of = [], _fused.Plan.of
    monkeypatch.setattr(_fused.Plan, "of", lambda *given: recorded.append(given) or of(*given))
    for _ in range(2):
        recorded.clear()
        ours, theirs = (steps(each, INPUTS[0], make()) for each in (optimized, model))
        close(ours[0], theirs[0])
        if isinstance(ours[1], OwnCache):
            assert ours[1].updates == theirs[1].updates == 8
    assert runs == recorded == []


@pytest.mark.parametrize("fault", ["raises", "another number", "another key"])
@torch.no_grad()
def test_a_plan_that_is_wrong(fault, monkeypatch):
    """It is found in the first call, whose result and cache are right."""
    model = made("Llama")
    optimized = headlane.torch.optimize(model)
    run, heads = _fused.Plan.run, _operations._heads

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
    monkeypatch.setattr(_operations, "_heads", wrong_heads)
    for _ in range(3):
        ours, theirs = steps(optimized, INPUTS[1]), steps(model, INPUTS[1])
        close(ours[0], theirs[0])
        close(entries(ours[1]), entries(theirs[1]))


@torch.no_grad()
def test_mixtures(runs):
    """Hooks of modules in them are called, and results of their routers are found."""
    model = made("Mixtral")
    optimized = headlane.torch.optimize(model)
    first, _ = steps(optimized, INPUTS[0])
    mixture = next(x for x in optimized.modules() if hasattr(x, "experts"))
    seen = []
    hooks = [x.register_forward_hook(lambda *call: seen.append(call)) for x in mixture.children()]
    runs.clear()
    assert same(steps(optimized, INPUTS[0])[0], first)
    assert (len(runs), len(seen)) == (2 * 4, len(hooks) * 4)
    hooks.append(mixture.register_forward_hook(lambda module, given, result: 2 * result))
    runs.clear()
    assert not same(steps(optimized, INPUTS[0])[0], first)
    assert len({id(x) for x in runs}) == 2  # the layer's attention, and the other layer
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
