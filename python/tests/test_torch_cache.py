"""Caches of transformers that grow in place: the keys and values of a DynamicCache, whatever is done to it."""

import copy
import io
import itertools
import pickle

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
import headlane.torch  # noqa: E402
from decoder_cases import CACHE  # noqa: E402
from headlane.torch._cache import GrowingLayer, GrowingSlidingLayer, grow  # noqa: E402
from test_torch_models import IDS, made  # noqa: E402
from torch_cases import normal  # noqa: E402
from transformers.cache_utils import DynamicCache, EncoderDecoderCache  # noqa: E402


def new_cache(is_growing, window=None, layers=1):
    """window: How many positions are visible to a query, if not all; then so many layers."""
    config = transformers.MistralConfig(num_hidden_layers=layers, sliding_window=window)
    cache = DynamicCache(config=config if window else None)
    if is_growing:
        grow(None, (), {CACHE: cache})
        if not window:  # it has no layers yet
            cache.layer_class_to_replicate = GrowingLayer
    return cache


def append(cache, count, seed, layer=0, dtype=torch.float32, width=8):
    keys, values = (normal(2, 3, count, width, seed=seed + i).to(dtype) for i in (0, 100))
    return [x.clone() for x in cache.update(keys, values, layer)]


def contents(cache):
    return [x for layer in cache.layers for x in (layer.keys, layer.values)]


def check(cache, expected):
    for ours, theirs in zip(contents(cache), contents(expected), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert cache.get_seq_length() == expected.get_seq_length()


@pytest.mark.parametrize(("window", "kind", "most"), [(None, GrowingLayer, 8), (9, GrowingSlidingLayer, 9)])
@torch.no_grad()
def test_it_grows_in_place(window, kind, most):
    cache, expected, addresses = new_cache(True, window, 2), new_cache(False, window, 2), []
    for step in range(300):
        for layer in (0, 1):
            count = 13 if step in (0, 50) else 1 + 4 * (step % 7 == 0)
            result = append(cache, count, step, layer)
            torch.testing.assert_close(result, append(expected, count, step, layer), rtol=0, atol=0)
        addresses.append(cache.layers[0].keys.untyped_storage().data_ptr())
        check(cache, expected)
        assert cache.get_mask_sizes(2, 0) == expected.get_mask_sizes(2, 0)
    assert type(cache.layers[1]) is kind
    assert 3 <= 1 + sum(one != other for one, other in zip(addresses, addresses[1:])) <= most


@pytest.mark.parametrize("window", [1, 2, 3])
@torch.no_grad()
def test_small_windows(window):
    caches = new_cache(True, window), new_cache(False, window)
    for step in range(9):
        results = [append(cache, 1 + step % 3, step) for cache in caches]
        torch.testing.assert_close(*results, rtol=0, atol=0)
        check(*caches)


@torch.no_grad()
def test_claims_with_a_window():
    """What is claimed begins with the oldest position that is visible."""
    caches = new_cache(True, 6), new_cache(False, 6)
    for step in range(20):
        results = []
        for cache in caches:
            layer = cache.layers[0]
            memory = getattr(layer, "claim", lambda count: None)(1) if step else None
            if memory is None:
                results.append(append(cache, 1, step))
                continue
            for there, seed in zip(memory, (step, step + 100)):
                there[:, :, memory[2]] = normal(2, 3, 1, 8, seed=seed)[:, :, 0]
            results.append([x[:, :, : memory[2] + 1].clone() for x in memory[:2]])
            layer.take(1)
        torch.testing.assert_close(*results, rtol=0, atol=0)
        check(*caches)
    keys = caches[0].layers[0].keys
    assert keys.shape[2] == 5
    assert keys.storage_offset() == 15 * 8


def crop(cache):
    cache.crop(-3)
    return cache


def reorder(cache):
    cache.reorder_cache(torch.tensor([1, 0]))
    return cache


def reset(cache):
    cache.reset()
    return cache


def shallow(cache):
    """Another cache with the same tensors, of which only the copy is used on."""
    other = copy.copy(cache)
    other.layers = [copy.copy(x) for x in cache.layers]
    return other


def narrower(cache):
    """The first numbers of each key and value, which are where they were."""
    for layer in cache.layers:
        layer.keys, layer.values = layer.keys[..., :5], layer.values[..., :5]
    return cache


def other_values(cache):
    """Values get another buffer, with their first position elsewhere."""
    for layer in cache.layers:
        layer.values = layer.values.clone()
    return cache


def recording(cache):
    cache.activate_past_recording()
    return cache


CHANGES = {
    "recording": recording,
    "crop": crop,
    "reorder": reorder,
    "reset": reset,
    "narrower": narrower,
    "other values": other_values,
    "shallow copy": shallow,
    "deep copy": copy.deepcopy,
    "pickle": lambda cache: pickle.loads(pickle.dumps(cache)),
}


@pytest.mark.parametrize(
    ("name", "window"), [*itertools.product(CHANGES, (None, 12)), ("other values", 5), ("shallow copy", 5)]
)
@torch.no_grad()
def test_what_is_done_to_a_cache(name, window):
    caches = []
    for is_growing in (True, False):
        cache = new_cache(is_growing, window)
        for step in range(5):
            append(cache, 2, step)
        changed = CHANGES[name](cache)
        for step in range(5):
            append(changed, 2, 50 + step, width=5 if name == "narrower" else 8)
        caches.append((cache, changed))
    for ours, theirs in zip(*caches):
        check(ours, theirs)


@pytest.mark.parametrize("window", [None, 7])
@torch.no_grad()
def test_two_copies_that_go_on(window):
    """Each has its own new positions behind the common ones."""
    first, second = (
        [cache, shallow(cache)]
        for cache in (new_cache(True, window), new_cache(False, window))
        if append(cache, 9, 0)
    )
    for caches in (first, second):
        append(caches[0], 1, 1)
        for step in range(5):
            for i, cache in enumerate(caches):
                append(cache, 1, 10 * i + step)
    for ours, theirs in zip(first, second):
        check(ours, theirs)


def grown():
    """A cache that has room, and what it is compared with."""
    caches = new_cache(True), new_cache(False)
    for cache in caches:
        append(cache, 2, 0)
        append(cache, 2, 1)
    return caches


@pytest.mark.parametrize("window", [None, 7])
@torch.no_grad()
def test_a_pickle_has_keys_and_values_only(window):
    """It is that of a cache that does not grow in place, and is read without headlane."""
    ours, theirs = (DynamicCache(config=transformers.MistralConfig(sliding_window=window)) for _ in range(2))
    for cache in (ours, theirs):
        append(cache, 2, 0)
    grow(None, (), {CACHE: ours})
    for cache in (ours, theirs):
        append(cache, 2, 1)
    assert "_headlane_keys" in vars(ours.layers[0])
    for copied in (pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours)):
        assert [type(x) for x in copied.layers] == [type(x) for x in theirs.layers]
        check(copied, theirs)
    assert b"headlane" not in pickle.dumps(ours)
    assert abs(len(pickle.dumps(ours)) - len(pickle.dumps(theirs))) < 1000
    file = io.BytesIO()
    torch.save(ours, file)
    file.seek(0)
    check(torch.load(file, weights_only=False), theirs)


@torch.no_grad()
def test_claims():
    """Of two copies that have the same room only one gets it, and of one that was changed none."""
    cache, expected = grown()
    layer, other = cache.layers[0], shallow(cache).layers[0]
    keys, values, begin = layer.claim(3)
    assert begin == 4
    assert other.claim(1) is None
    assert layer.claim(1) is None
    keys[:, :, 4:7], values[:, :, 4:7] = 1.0, 2.0
    layer.take(3)
    assert layer.keys[:, :, :4].equal(other.keys)
    assert layer.keys[:, :, 4:].eq(1).all()
    assert layer.values[:, :, 4:].eq(2).all()
    assert layer.claim(2)[2] == 7
    layer.release(2)
    assert layer.claim(keys.shape[2]) is None
    layer.crop(-1)
    assert layer.claim(1) is None
    assert other.claim(1) is None
    append(expected, 1, 7)
    other_cache = new_cache(True)
    other_cache.layers = [other]
    append(other_cache, 1, 7)
    check(other_cache, expected)


@torch.no_grad()
def test_room_that_was_claimed_and_not_written():
    cache, expected = grown()
    assert cache.layers[0].claim(1) is not None
    for each in (cache, expected):
        append(each, 2, 2)
    check(cache, expected)


def test_keys_that_somebody_has_stay():
    cache = new_cache(True)
    with torch.no_grad():
        append(cache, 2, 0)
        append(cache, 2, 1)
        older = cache.layers[0].keys
        before = older.clone()
        cache.crop(-1)
        append(cache, 3, 2)
    torch.testing.assert_close(older, before, rtol=0, atol=0)


def test_modes_and_types():
    """Inference mode and not, gradients, float16 behind float32: as PyTorch joins them."""
    caches = new_cache(True), new_cache(False)
    for cache in caches:
        for mode in (torch.no_grad, torch.inference_mode, torch.no_grad, torch.enable_grad):
            for step in range(3):
                with mode():
                    append(cache, 1, step)
        append(cache, 1, 9, dtype=torch.float16)
        append(cache, 1, 10, dtype=torch.float16)
    check(*caches)
    keys = normal(2, 3, 1, 8).requires_grad_()
    caches[0].update(keys, keys, 0)[0].sum().backward()
    torch.testing.assert_close(keys.grad, torch.ones_like(keys))


@pytest.mark.parametrize("name", ["llama", "gpt2", "t5"])
@torch.no_grad()
def test_models(name):
    """generate() grows its cache; restore() leaves no trace."""
    model = made(name)
    hooks = [dict(x._forward_pre_hooks) for x in model.modules()]
    optimized = headlane.torch.optimize(model)
    headlane.torch.optimize(optimized.get_submodule("lm_head"), inplace=True)
    options = {"max_new_tokens": 9, "do_sample": False, "pad_token_id": 0, "return_dict_in_generate": True}
    options["attention_mask"] = torch.ones_like(IDS)
    cache = optimized.generate(IDS, **options)[CACHE]
    cache = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
    assert all(type(x) is GrowingLayer and "_headlane_keys" in x.__dict__ for x in cache.layers)
    given = DynamicCache()
    optimized.generate(IDS, **options, **{CACHE: given if name != "t5" else None})
    headlane.torch.restore(optimized)
    assert [dict(x._forward_pre_hooks) for x in optimized.modules()] == hooks
    assert not any(x._forward_pre_hooks_with_kwargs for x in optimized.modules())
