"""headlane.torch: caches of latent attention, and what is kept beside them."""

import copy
import gc

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
import headlane.torch  # noqa: E402
from decoder_cases import CACHE, IDS, INPUTS, close, entries, steps  # noqa: E402
from headlane.torch import _kept  # noqa: E402
from latent_cases import made  # noqa: E402


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


@pytest.mark.parametrize("name", ["DeepseekV3", "MiniCPM3"])
def test_gradients_of_a_cache(name):
    """As in prefix tuning. They are wanted for what the cache holds; the code of the module runs."""
    model = made(name).requires_grad_(False)
    optimized = headlane.torch.optimize(model)
    steps(optimized, INPUTS[0])
    gradients = []
    for one in (model, optimized):
        with torch.no_grad():
            cache = steps(model, INPUTS[0])[1]
        for layer in cache.layers:
            layer.keys, layer.values = (x.clone().requires_grad_() for x in (layer.keys, layer.values))
        leaves = entries(cache)
        one(IDS[:, :2], **{CACHE: cache}, use_cache=True).logits.square().sum().backward()
        assert [x.shape[2] for x in entries(cache)] == [14] * 4
        gradients.append([x.grad for x in leaves])
    close(*gradients)


@pytest.mark.parametrize("change", ["dtype", "length"])
@torch.no_grad()
def test_a_cache_that_does_not_fit(change):
    """The error is that of the model's code."""
    model = made("DeepseekV3")
    for one in (model, headlane.torch.optimize(model)):
        steps(one, INPUTS[0])
        cache = steps(one, INPUTS[0])[1]
        for layer in cache.layers:
            layer.keys = layer.keys.double() if change == "dtype" else layer.keys[:, :, 1:]
        with pytest.raises(RuntimeError, match="dtype" if change == "dtype" else "size of tensor|must match"):
            one(IDS[:, :2], **{CACHE: cache}, use_cache=True)
