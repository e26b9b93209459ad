"""headlane.torch: layers of decoders that attend to an encoder's result as one call, and the bits of their modules
one by one.
"""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
import headlane.torch  # noqa: E402
from decoder_cases import CACHE, check_modules, claims_in, close, same  # noqa: E402
from headlane.torch import _fused  # noqa: E402
from torch_cases import seeded  # noqa: E402
from transformers.cache_utils import DynamicCache, EncoderDecoderCache  # noqa: E402

transformers.logging.set_verbosity_error()
SPECIAL = {
    "vocab_size": 50,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 3,
}
BART = {
    **SPECIAL,
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 40,
    "max_position_embeddings": 64,
    "forced_eos_token_id": None,
}
T5 = {**SPECIAL, "d_model": 24, "d_kv": 8, "d_ff": 40, "num_layers": 3, "num_heads": 3}
WHISPER = {**BART, "num_mel_bins": 8, "max_source_positions": 12, "max_target_positions": 64}
# How many layers of the decoder are one call: T5's first layer computes the bias of the others.
MODELS = {
    "Whisper": (WHISPER, 2),
    "Bart": (BART, 2),
    "MBart": (BART, 2),
    "Marian": (BART, 2),
    "Pegasus": (BART, 2),
    "M2M100": (BART, 2),
    "Blenderbot": (BART, 2),
    "T5": (T5, 2),
    "T5 gated": ({**T5, "feed_forward_proj": "gated-gelu"}, 2),
}
IDS = torch.arange(3, 21).view(2, 9)
PADDED = torch.tensor([[1] * 9, [1] * 5 + [0] * 4])
INPUTS = [{"input_ids": IDS}, {"input_ids": IDS, "attention_mask": PADDED}]
CLASSES = {"Whisper": "WhisperForConditionalGeneration"}


def made(name):
    config = getattr(transformers, f"{name.split()[0]}Config")(**MODELS[name][0])
    return seeded(
        getattr(transformers, CLASSES.get(name, ""), transformers.AutoModelForSeq2SeqLM.from_config), config
    )


def given_to(name, given):
    if name != "Whisper":
        return given
    generator = torch.Generator().manual_seed(5)
    return {"input_features": torch.randn(2, 8, 24, generator=generator)}


def new_cache():
    return EncoderDecoderCache(DynamicCache(), DynamicCache())


def steps(model, given, cache=None, count=3):
    """Logits of three tokens and of others one by one, and the cache."""
    mask, logits = {k: x for k, x in given.items() if k == "attention_mask"}, []
    cache = new_cache() if cache is None else cache
    encoded = model.get_encoder()(**given)
    tokens = torch.tensor([[3, 4, 5], [3, 6, 7]])
    for token in range(count + 1):
        made = model(
            encoder_outputs=encoded, decoder_input_ids=tokens, **{CACHE: cache}, use_cache=True, **mask
        )
        logits.append(made.logits)
        tokens = torch.tensor([[7 + token], [8 + token]])
    return logits, cache


def entries(cache):
    layers = cache.self_attention_cache.layers + cache.cross_attention_cache.layers
    return [x for layer in layers for x in (layer.keys, layer.values)]


@pytest.fixture
def runs(monkeypatch):
    """The plans of whole decoder layers that were run."""
    seen, run = [], _fused.Plan.run

    def watched(plan, inputs):
        result = run(plan, inputs)
        if plan.filled and plan.with_room and result is not NotImplemented:
            seen.append(plan)
        return result

    monkeypatch.setattr(_fused.Plan, "run", watched)
    return seen


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("given", INPUTS, ids=["whole", "padded"])
@torch.no_grad()
def test_layers(name, given, runs, monkeypatch):
    model, given = made(name), given_to(name, given)
    optimized = headlane.torch.optimize(model)
    first, first_cache = steps(optimized, given)  # whose plans are made
    runs.clear()
    with monkeypatch.context() as context:
        claims = claims_in(context)
        result, cache = steps(optimized, given)
    layers = MODELS[name][1]
    assert [len(plan.with_room) for plan in runs] == [1] * layers * 3
    assert sum(claims) == layers * 2  # the first token after the others finds no room
    expected, expected_cache = steps(model, given)
    close(result, expected)
    close(entries(cache), entries(expected_cache))
    assert cache.is_updated == expected_cache.is_updated
    assert same(result, first)
    assert same(entries(cache), entries(first_cache))
    check_modules(monkeypatch, (result, cache), entries, steps, optimized, given)
    headlane.torch.restore(optimized)
    assert same(steps(optimized, given)[0], expected)


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_16_bits(name, runs, monkeypatch):
    """Each operation has the roundings that it has in its module."""
    model, given = made(name).bfloat16(), given_to(name, INPUTS[1])
    given = {key: x.bfloat16() if x.is_floating_point() else x for key, x in given.items()}
    optimized = headlane.torch.optimize(model)
    steps(optimized, given)
    runs.clear()
    result, cache = steps(optimized, given)
    assert len(runs) == MODELS[name][1] * 3
    check_modules(monkeypatch, (result, cache), entries, steps, optimized, given)
    for x, y in zip(result, steps(model, given)[0]):
        assert (x - y).abs().max() <= 32 * torch.finfo(torch.bfloat16).eps * y.abs().max()


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_generation(name):
    model, given = made(name), given_to(name, INPUTS[1])
    optimized = headlane.torch.optimize(model)
    for options in ({}, {"num_beams": 3}):
        ours, theirs = (
            each.generate(**given, max_new_tokens=12, do_sample=False, **options)
            for each in (optimized, model)
        )
        assert ours.equal(theirs)


@pytest.mark.parametrize("name", ["Bart", "T5"])
@torch.no_grad()
def test_another_encoder_result(name):
    """A cache that was reset takes the keys of another one."""
    model = made(name)
    optimized = headlane.torch.optimize(model)
    results = []
    for each in (optimized, model):
        _, cache = steps(each, INPUTS[0])
        cache.reset()
        assert cache.is_updated == dict.fromkeys(range(len(cache)), False)
        results.append(steps(each, {"input_ids": IDS.flip(1)[:, :7]}, cache))
    close(results[0][0], results[1][0])
    close(entries(results[0][1]), entries(results[1][1]))


@torch.no_grad()
def test_fewer_sequences_than_the_encoder_has():
    """Keys of another number of sequences are repeated, or refused, as by the code."""
    model = made("Bart")
    optimized = headlane.torch.optimize(model)
    for batch in (1, 3):
        results = []
        for each in (optimized, model):
            _, cache = steps(each, INPUTS[0])
            cache.cross_attention_cache.batch_select_indices(torch.tensor([0] * batch))
            before = [x.clone() for x in entries(cache)]
            tokens = torch.tensor([[7], [8]])
            encoded = each.get_encoder()(IDS)
            try:
                result = each(encoder_outputs=encoded, decoder_input_ids=tokens, **{CACHE: cache})
                results.append([result.logits])
            except (RuntimeError, ValueError):
                results.append(before[2:])
        close(*results)


@torch.no_grad()
def test_keys_in_another_order(runs):
    """They are attended to by themselves; the room that was claimed for the new keys is theirs nevertheless."""
    model = made("Bart")
    optimized = headlane.torch.optimize(model)
    steps(optimized, INPUTS[0])
    results, tokens = [], torch.tensor([[7], [8]])
    for each in (optimized, model):
        _, cache = steps(each, INPUTS[0])
        runs.clear()
        before = cache.self_attention_cache.layers[1].keys.data_ptr()
        for layer in cache.cross_attention_cache.layers:
            layer.keys = layer.keys.transpose(2, 3).contiguous().transpose(2, 3)
        encoded = each.get_encoder()(IDS)
        results.append(each(encoder_outputs=encoded, decoder_input_ids=tokens, **{CACHE: cache}).logits)
        assert len(runs) == (0 if each is model else 2)
        assert each is model or cache.self_attention_cache.layers[1].keys.data_ptr() == before
    close(*results)


@torch.no_grad()
def test_layers_that_are_not_there(runs):
    """A cache says that it is filled, and is not."""
    model = made("Bart")
    optimized = headlane.torch.optimize(model)
    steps(optimized, INPUTS[0])
    runs.clear()
    for each in (optimized, model):
        _, cache = steps(each, INPUTS[0], count=1)
        cache.cross_attention_cache.layers = cache.cross_attention_cache.layers[:1]
        with pytest.raises(IndexError):
            each(encoder_outputs=each.get_encoder()(IDS), decoder_input_ids=IDS[:, :1], **{CACHE: cache})


@pytest.mark.parametrize("fault", ["raises", "another number"])
@pytest.mark.parametrize("name", ["Whisper", "T5"])
@torch.no_grad()
def test_a_plan_that_is_wrong(name, fault, monkeypatch):
    """It is found in the first call, whose result and cache are right."""
    model, given = made(name), given_to(name, INPUTS[0])
    optimized = headlane.torch.optimize(model)
    run = _fused.Plan.run

    def wrong(plan, inputs):
        result = run(plan, inputs)
        if not plan.filled or result is NotImplemented:
            return result
        if fault == "raises":
            raise ValueError
        return (result[0] + 0.01, *result[1:]) if isinstance(result, tuple) else result + 0.01

    monkeypatch.setattr(_fused.Plan, "run", wrong)
    for _ in range(2):
        ours, theirs = steps(optimized, given), steps(model, given)
        close(ours[0], theirs[0])
        close(entries(ours[1]), entries(theirs[1]))
