"""headlane.torch: layers that use the keys and values of others, are given an input of their own, and are scaled in
place, as those of Gemma 4.
"""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
if not hasattr(transformers, "Gemma4TextConfig"):
    pytest.skip("transformers has no Gemma 4", allow_module_level=True)
import headlane.torch  # noqa: E402
from decoder_cases import (  # noqa: E402
    CACHE,
    INPUTS,
    LAYER_TYPES,
    LLAMA,
    check_modules,
    close,
    real,
    same,
    steps,
)
from decoder_cases import entries as all_entries  # noqa: E402
from headlane.torch import _fused  # noqa: E402
from torch_cases import normal, seeded  # noqa: E402
from transformers.cache_utils import KVSharingDict  # noqa: E402

SIZES = {
    **LLAMA,
    "num_hidden_layers": 6,
    "head_dim": 8,
    "global_head_dim": 16,
    "sliding_window": 5,
    "layer_types": LAYER_TYPES * 3,
    "vocab_size_per_layer_input": 50,
    "hidden_size_per_layer_input": 8,
}
EXPERTS = {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 4, "moe_intermediate_size": 24}
MODELS = {
    "shared": {**SIZES, "num_kv_shared_layers": 2},
    "own": {**SIZES, "num_kv_shared_layers": 0},
    "dense": {**SIZES, "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0},
    "experts": {**SIZES, "num_kv_shared_layers": 0, **EXPERTS},
    "keys as values": {
        **SIZES,
        "num_kv_shared_layers": 0,
        "attention_k_eq_v": True,
        "num_global_key_value_heads": 1,
    },
}


def made(name, dtype=torch.float32):
    config = transformers.Gemma4TextConfig(**MODELS[name])
    model = seeded(transformers.AutoModelForCausalLM.from_config, config)
    for number, layer in enumerate(model.model.layers):
        layer.layer_scalar.fill_(1.25 - number / 8)
    return model.to(dtype)


def entries(cache):
    return [x for x in all_entries(cache) if x is not None]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("given", INPUTS, ids=["whole", "padded"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@torch.no_grad()
def test_layers(name, given, dtype, decoder_runs, monkeypatch):
    model = made(name, dtype)
    optimized = headlane.torch.optimize(model)
    first, _ = steps(optimized, given)  # whose plans are made
    decoder_runs.clear()
    result, cache = steps(optimized, given)
    # PyTorch first gives the factor of a layer its shape. Experts, and the router with its three
    # results, are calls.
    count = 11 if name == "experts" else 4
    assert [(len(x.steps), len(x.with_room)) for x in decoder_runs] == [(count, count - 2)] * 6 * 4
    assert all(plan.is_deep for plan in decoder_runs)
    expected, expected_cache = steps(model, given)
    if dtype is torch.float32:
        close(real(result, given), real(expected, given))
        close(real(entries(cache), given), real(entries(expected_cache), given))
    else:
        pairs = list(zip(real(result, given), real(expected, given)))
        limit = 32 * torch.finfo(dtype).eps * max(x.abs().max() for _, x in pairs)
        assert max((x - y).abs().max() for x, y in pairs) <= limit
    assert same(result, first)
    check_modules(monkeypatch, (result, cache), entries, steps, optimized, given)


@torch.no_grad()
def test_generation():
    for name in MODELS:
        model = made(name)
        optimized = headlane.torch.optimize(model)
        for options in ({}, {"num_beams": 3}, {"use_cache": False}):
            ours, theirs = (
                each.generate(**INPUTS[1], max_new_tokens=8, do_sample=False, **options)
                for each in (optimized, model)
            )
            assert ours.equal(theirs)


@torch.no_grad()
def test_factors_that_change(decoder_runs):
    model = made("own")
    optimized = headlane.torch.optimize(model)
    for change in ("none", "in place", "another"):
        for layer in (*model.model.layers, *optimized.model.layers):
            if change == "in place":
                layer.layer_scalar.mul_(0.5)
            elif change == "another":
                layer.layer_scalar = torch.tensor([1.5])
        for _ in range(2):
            decoder_runs.clear()
            close(steps(optimized, INPUTS[0])[0], steps(model, INPUTS[0])[0])
        assert any(plan.is_deep for plan in decoder_runs) is (change != "another")


@pytest.mark.parametrize("shape", [(1, 5, 8), (2, 1, 8), (2, 5, 1)], ids=str)
@torch.no_grad()
def test_inputs_that_are_repeated(shape, decoder_runs):
    """The plan does not run for them, and the cache is appended to once."""
    model = made("own")
    layers = [x.model.layers[0] for x in (model, headlane.torch.optimize(model))]
    x, tables = normal(2, 5, 32), (normal(1, 5, 8, seed=2), normal(1, 5, 8, seed=3))
    mask = torch.ones(2, 1, 5, 5, dtype=torch.bool).tril()
    for each in ((2, 5, 8), (2, 5, 8), shape, (2, 5, 8)):
        caches = [transformers.DynamicCache(config=model.config) for _ in layers]
        decoder_runs.clear()
        made_by = [
            layer(x, normal(*each, seed=4), None, tables, mask, **{CACHE: cache})
            for layer, cache in zip(layers, caches)
        ]
        close(made_by[1:], made_by[:1])
        close(*(entries(cache)[:2] for cache in caches))
    assert [len(plan.equal) for plan in decoder_runs] == [1]


@torch.no_grad()
def test_keys_of_other_sizes(decoder_runs):
    """Of a dict whose keys change between calls."""
    model = made("shared")
    layers = [x.model.layers[4] for x in (model, headlane.torch.optimize(model))]
    tables = normal(1, 3, 8, seed=2), normal(1, 3, 8, seed=3)
    runs = []
    for heads, length, batch in ((2, 7, 2), (2, 7, 2), (4, 7, 2), (2, 3, 2), (1, 3, 2), (2, 9, 2), (2, 7, 1)):
        x, keys = normal(2, 3, 32), normal(batch, heads, length, 8, seed=5)
        shared = KVSharingDict(
            {"sliding_attention": (keys, 2 * keys), "full_attention": (keys, keys[..., :4])}
        )
        given = normal(2, 3, 8, seed=4), shared, tables, torch.ones(2, 1, 3, length, dtype=torch.bool)
        layers[0].self_attn.num_key_value_groups = 4 // heads
        decoder_runs.clear()
        close([layers[1](x, *given)], [layers[0](x, *given)])
        runs.append(len([plan for plan in decoder_runs if plan.is_deep]))
    assert min(runs) == 1
    assert len({*layers[1]._headlane.plans}) == 3


@pytest.mark.parametrize("fault", ["raises", "other keys", "other values", "nothing"])
@torch.no_grad()
def test_a_plan_that_is_wrong(fault, monkeypatch):
    """It is found in the first call: others get the right keys."""
    model = made("shared")
    optimized = headlane.torch.optimize(model)
    run = _fused.Plan.run

    def wrong(plan, inputs):
        shared = next((x for x in inputs if isinstance(x, KVSharingDict)), {})
        names = {*shared}
        result = run(plan, inputs)
        for name in {*shared} - names:
            keys, values = shared[name]
            if fault == "raises":
                raise ValueError
            if fault == "nothing":
                del shared[name]
            else:
                shared[name] = (keys + 0.01, values) if fault == "other keys" else (keys, 2 * values)
        return result

    monkeypatch.setattr(_fused.Plan, "run", wrong)
    for _ in range(2):
        ours, theirs = steps(optimized, INPUTS[1]), steps(model, INPUTS[1])
        close(real(ours[0], INPUTS[1]), real(theirs[0], INPUTS[1]))
        close(real(entries(ours[1]), INPUTS[1]), real(entries(theirs[1]), INPUTS[1]))


@torch.no_grad()
def test_keys_that_a_caller_gets(decoder_runs):
    """All of them, also of layers with a window, and those of earlier calls remain."""
    model = made("shared")
    optimized, found = headlane.torch.optimize(model), []
    for one in (model, optimized, optimized):
        cache = transformers.DynamicCache(config=model.config)
        ids = torch.arange(3, 27).view(2, 12)
        decoder_runs.clear()
        parts = [ids[:, :7], ids[:, 7:8], ids[:, 8:9], ids[:, 9:]]
        shared = [KVSharingDict() for _ in parts]
        for x, each in zip(parts, shared):
            one(x, **{CACHE: cache}, shared_kv_states=each)
        found.append([x for each in shared for _, pair in sorted(each.items()) for x in pair])
    assert [x.shape[2] for x in found[0][::2]] == [7, 7, 8, 5, 9, 5, 12, 7]
    close(found[1], found[0])
    close(found[2], found[0])
    assert len(decoder_runs) == 6 * 4
