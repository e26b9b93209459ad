"""headlane.torch: layers whose cache holds what keys and values are computed from, as DeepSeek's latent attention."""

import copy
import gc

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
import headlane.torch  # noqa: E402
from decoder_cases import (  # noqa: E402
    CACHE,
    IDS,
    INPUTS,
    LLAMA,
    close,
    entries,
    real,
    same,
    steps,
)
from headlane.torch import _kept  # noqa: E402
from torch_cases import normal, seeded  # noqa: E402

SIZES = {
    **LLAMA,
    "num_key_value_heads": 4,
    "kv_lora_rank": 12,
    "q_lora_rank": 20,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
}
DENSE = {"first_k_dense_replace": 2}
# And the calls in the plan of a layer: its last one takes what follows the attention.
MODELS = {
    "DeepseekV3": ({**SIZES, **DENSE}, 3),  # pairs of neighbours become halves
    "DeepseekV3 halves": ({**SIZES, **DENSE, "rope_interleave": False}, 3),
    "DeepseekV3 without lora": ({**SIZES, **DENSE, "q_lora_rank": None}, 3),
    "DeepseekV2": ({**SIZES, **DENSE}, 5),  # complex numbers, of which both parts are taken first
    "MiniCPM3": (SIZES, 3),
    "Youtu": (SIZES, 3),
}


def config_of(name, **more):
    return getattr(transformers, f"{name.split()[0]}Config")(**MODELS[name][0], **more)


def made(name, **more):
    return seeded(transformers.AutoModelForCausalLM.from_config, config_of(name, **more))


@pytest.fixture
def known(monkeypatch):
    """How many positions of a layer were known, for each attention."""
    seen, of = [], _kept.Kept.of

    def watched(kept, sources, count):
        known = kept._known(sources, sources[0].shape[-2] - count)
        seen.append((known, sources[0].shape[-2]))
        return of(kept, sources, count)

    monkeypatch.setattr(_kept.Kept, "of", watched)
    return seen


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
def test_a_cropped_cache(known):
    model = made("DeepseekV3")

    def again(model):
        cache = steps(model, INPUTS[0])[1]
        cache.crop(-5)
        return steps(model, {"input_ids": IDS[:, :3]}, cache)[0]

    expected = again(model)
    optimized = headlane.torch.optimize(model)
    again(optimized)
    known.clear()
    close(again(optimized), expected)
    assert (7, 10) in known
    assert (0, 10) not in known


@torch.no_grad()
def test_copies_of_a_cache():
    """Two continuations of a prompt, from its cache and a copy of it."""
    model = made("DeepseekV3")
    expected = [steps(model, {"input_ids": x}, steps(model, INPUTS[0])[1])[0] for x in (IDS, IDS.flip(1))]
    optimized = headlane.torch.optimize(model)
    for _ in range(2):
        cache = steps(optimized, INPUTS[0])[1]
        other = copy.deepcopy(cache)
        close(steps(optimized, {"input_ids": IDS}, other)[0], expected[0])
        close(steps(optimized, {"input_ids": IDS.flip(1)}, cache)[0], expected[1])


@torch.no_grad()
def test_what_others_do_to_a_cache(known):
    """Sequences that change places, as in beam search, and numbers that change where they are."""
    model = made("MiniCPM3")

    def changed(model):
        cache = steps(model, INPUTS[0])[1]
        cache.reorder_cache(torch.tensor([1, 0]))
        one = steps(model, {"input_ids": IDS[:, :1]}, cache)[0]
        cache.layers[0].keys[1, 0, 2] *= -1
        cache.layers[1].values[0, 0, 3, 1] = 0.5
        return one + steps(model, {"input_ids": IDS[:, :1]}, cache)[0]

    expected = changed(model)
    optimized = headlane.torch.optimize(model)
    changed(optimized)
    known.clear()
    close(changed(optimized), expected)
    assert known.count((0, 13)) == known.count((0, 17)) == 2


@torch.no_grad()
def test_beams():
    model = made("DeepseekV3")
    options = {"max_new_tokens": 6, "num_beams": 3, "do_sample": False}
    expected = model.generate(IDS, **options)
    optimized = headlane.torch.optimize(model)
    for _ in range(2):
        assert optimized.generate(IDS, **options).equal(expected)


@torch.no_grad()
def test_other_weights_with_the_same_cache():
    """What was computed by the weights before is not used."""
    model = made("DeepseekV3")

    def replaced(model, optimize, restore):
        model = optimize(model)
        cache = steps(model, INPUTS[0])[1]
        restore(model)
        for layer in model.model.layers:
            layer.self_attn.kv_b_proj.weight.mul_(-0.5)
        return steps(optimize(model), {"input_ids": IDS[:, :2]}, cache)[0]

    expected = replaced(copy.deepcopy(model), lambda model: model, lambda model: None)
    close(replaced(model, headlane.torch.optimize, headlane.torch.restore), expected)


@torch.no_grad()
def test_nan_in_a_cache(known):
    model = headlane.torch.optimize(made("MiniCPM3"))
    steps(model, INPUTS[0])
    cache = steps(model, INPUTS[0])[1]
    cache.layers[0].keys[0, 0, 0, 0] = float("nan")
    known.clear()
    logits = steps(model, {"input_ids": IDS[:, :1]}, cache)[0]
    assert all(x[0].isnan().any() and not x[1].isnan().any() for x in logits)
    assert [x for x, _ in known] == [0, 12, 13, 13, 14, 14, 15, 15]  # once more, then as before


@torch.no_grad()
def test_memory_is_released():
    model = headlane.torch.optimize(made("DeepseekV3"))
    gc.collect()
    before = len(_kept._KEPT)
    cache = steps(model, INPUTS[0])[1]
    assert len(_kept._KEPT) == before + 2
    del cache
    gc.collect()
    assert len(_kept._KEPT) == before


@torch.no_grad()
def test_a_cache_that_forgets(known):
    """Layers with a window are left to the code of the module."""
    model = made("DeepseekV3")
    window = copy.deepcopy(model.config)
    window.sliding_window = 4

    def decoded(model):
        return steps(model, INPUTS[0], transformers.DynamicCache(config=window))[0]

    expected = decoded(model)
    optimized = headlane.torch.optimize(model)
    steps(optimized, INPUTS[0])
    known.clear()
    close(decoded(optimized), expected)
    assert not known


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


def test_gradients():
    """With gradients the code of the module runs."""
    model = headlane.torch.optimize(made("DeepseekV3"))
    embedded = normal(2, 5, 32).requires_grad_()
    model(inputs_embeds=embedded, use_cache=True).logits.sum().backward()
    assert embedded.grad.isfinite().all()
    assert embedded.grad.abs().sum() > 0
