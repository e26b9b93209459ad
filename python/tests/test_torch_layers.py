"""headlane.torch: whole layers of transformers as a few calls, with the bits of their modules one by one."""

import copy
import pickle
from collections import OrderedDict

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
import headlane.torch  # noqa: E402
from headlane.torch import _fused  # noqa: E402
from torch import nn  # noqa: E402
from torch_cases import normal, seeded  # noqa: E402

transformers.logging.set_verbosity_error()
SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40}
SPECIAL = {"vocab_size": 50, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
TEXT = {**SIZES, **SPECIAL}
DISTILBERT = {"vocab_size": 50, "dim": 24, "n_layers": 2, "n_heads": 3, "hidden_dim": 40}
HALF = {"layers": 2, "attention_heads": 3, "ffn_dim": 40}
WHISPER = {
    **{f"{half}_{name}": size for half in ("encoder", "decoder") for name, size in HALF.items()},
    **{"d_model": 24, "max_source_positions": 20, "num_mel_bins": 8, "decoder_start_token_id": 1},
    **SPECIAL,
}
IMAGES = {**SIZES, "image_size": 16, "patch_size": 4}
IDS = torch.arange(3, 21).view(2, 9)
PADDED = torch.tensor([[1] * 9, [1] * 5 + [0] * 4])
TOKENS = [{"input_ids": IDS}, {"input_ids": IDS, "attention_mask": PADDED}]
PIXELS = [{"pixel_values": normal(2, 3, 16, 16)}]
# Calls in each plan. A stack of layers is a plan with a call for each, unless its module does more.
# CLIP's activation is PyTorch's code.
CALLS = {"ViT": [1, 1], "Whisper": [1, 1], "CLIPText": [5], "CLIPVision": [5]}
# The class of a layer, and inputs that a model is called with.
MODELS = {
    "Bert": (TEXT, "BertLayer", TOKENS),
    "Roberta": ({**TEXT, "pad_token_id": 1}, "RobertaLayer", TOKENS),
    "Electra": ({**TEXT, "embedding_size": 16}, "ElectraLayer", TOKENS),
    "DistilBert": (DISTILBERT, "TransformerBlock", TOKENS),
    "ViT": (IMAGES, "ViTLayer", PIXELS),
    "CLIPText": (TEXT, "CLIPEncoderLayer", TOKENS),
    "CLIPVision": (IMAGES, "CLIPEncoderLayer", PIXELS),
    "Whisper": (WHISPER, "WhisperEncoderLayer", [{"input_features": normal(2, 8, 40)}]),
}


def made(name, **options):
    sizes, layer, inputs = MODELS[name]
    config = getattr(transformers, f"{name}Config")(**sizes, **options)
    model = seeded(getattr(transformers, f"{name}Model"), config)
    return model.encoder if name == "Whisper" else model, layer, inputs


def layers_of(model, layer):
    return [x for x in model.modules() if type(x).__name__ == layer]


def states(model, inputs):
    return model(**inputs).last_hidden_state


def by_modules(model, monkeypatch, inputs):
    """What the modules of an optimized model compute one by one."""
    with monkeypatch.context() as context:
        context.setattr(_fused.Plan, "applies", lambda plan: not plan.is_deep)
        return states(model, inputs)


@pytest.fixture
def runs(monkeypatch):
    """Which plans of several modules were run."""
    seen, run = [], _fused.Plan.run

    def watched(plan, tensors):
        if plan.is_deep:
            seen.append(plan)
        return run(plan, tensors)

    monkeypatch.setattr(_fused.Plan, "run", watched)
    return seen


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_layers(name, runs, monkeypatch):
    model, layer, inputs = made(name)
    optimized = headlane.torch.optimize(model)
    for given in inputs:
        first = states(optimized, given)  # whose plans are made
        runs.clear()
        result = states(optimized, given)
        assert len(layers_of(model, layer)) == 2
        assert [len(plan.steps) for plan in runs] == CALLS.get(name, [2])
        expected = states(model, given)
        torch.testing.assert_close(result, expected, rtol=0, atol=2e-5)
        assert result.equal(first)
        assert result.equal(by_modules(optimized, monkeypatch, given))
    for same in (copy.deepcopy(optimized), pickle.loads(pickle.dumps(optimized))):
        assert states(same, inputs[-1]).equal(result)
    headlane.torch.restore(optimized)
    assert states(optimized, inputs[-1]).equal(expected)


@pytest.mark.parametrize(("weights", "activations"), [("int8", None), ("int8", "int8"), ("bfloat16", None)])
@torch.no_grad()
def test_fewer_bits(weights, activations, runs, monkeypatch):
    model, _, inputs = made("Bert")
    optimized = headlane.torch.optimize(model, weights=weights, activations=activations)
    states(optimized, inputs[1])
    runs.clear()
    result = states(optimized, inputs[1])
    assert len(runs) == 1
    assert result.equal(by_modules(optimized, monkeypatch, inputs[1]))


@torch.no_grad()
def test_output_of_a_stack(runs):
    model, _, _ = made("Bert")
    optimized, x = headlane.torch.optimize(model), normal(2, 5, 24)
    for _ in range(2):
        ours, theirs = (each.encoder(x) for each in (optimized, model))
        assert type(ours) is type(theirs)
        assert list(ours) == ["last_hidden_state"]
        torch.testing.assert_close(ours[0], theirs[0], rtol=0, atol=2e-5)
    assert [len(plan.steps) for plan in runs if len(plan.steps) > 1] == [2, 2]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@torch.no_grad()
def test_16_bit_models(name, dtype, runs, monkeypatch):
    """Sums are rounded where the code of the modules does."""
    model, _, inputs = made(name)
    model = model.to(dtype)
    optimized = headlane.torch.optimize(model)
    for given in inputs:
        given = {key: x.to(dtype) if x.is_floating_point() else x for key, x in given.items()}
        first = states(optimized, given)
        runs.clear()
        result = states(optimized, given)
        is_clamped = name == "Whisper" and dtype is torch.float16
        assert [len(plan.steps) for plan in runs] == ([] if is_clamped else CALLS.get(name, [2]))
        assert result.equal(first)
        assert result.equal(by_modules(optimized, monkeypatch, given))
        error = (result - states(model, given)).abs().max()
        assert error <= 16 * torch.finfo(dtype).eps * result.abs().max()


@torch.no_grad()
def test_chunks(runs, monkeypatch):
    """A few rows at a time go through the operations of a layer."""
    config = transformers.BertConfig(**{**TEXT, "intermediate_size": 20000})
    optimized = headlane.torch.optimize(seeded(transformers.BertModel, config))
    given = {"input_ids": torch.arange(500).view(5, 100) % 50}
    states(optimized, given)
    runs.clear()
    result = states(optimized, given)
    assert len(runs) == 1
    assert result.equal(by_modules(optimized, monkeypatch, given))


CHANGES = {
    "a part": lambda layer: setattr(layer.intermediate, "intermediate_act_fn", nn.ReLU()),
    "a number": lambda layer: setattr(layer.attention.self, "scaling", 2.0),
    "a method": lambda layer: setattr(layer, "feed_forward_chunk", lambda x: x),
    "a norm": lambda layer: layer.output.LayerNorm.weight.mul_(3),
    "its eps": lambda layer: setattr(layer.output.LayerNorm, "eps", 0.5),
    "a function": lambda layer: setattr(layer.intermediate, "forward", lambda x: x.repeat(1, 1, 2)[..., :40]),
}


@pytest.mark.parametrize("name", CHANGES)
@torch.no_grad()
def test_a_layer_that_is_changed(name):
    model, _, inputs = made("Bert")
    optimized = headlane.torch.optimize(model)
    for given in inputs:
        before = states(optimized, given)
    for each in (model, optimized):
        CHANGES[name](each.encoder.layer[0])
    for given in inputs:
        result = states(optimized, given)
        torch.testing.assert_close(result, states(model, given), rtol=0, atol=2e-5)
    assert not torch.allclose(result, before, atol=1e-3)


@torch.no_grad()
def test_hooks_inside(runs):
    """A module inside a layer that somebody looks at is called; later the layer is one plan again."""
    model, _, inputs = made("Bert")
    optimized = headlane.torch.optimize(model)
    expected, seen = states(optimized, inputs[0]), []
    inside = optimized.encoder.layer[0].output.dense
    hook = inside.register_forward_hook(lambda module, given, output: seen.append(output))
    runs.clear()
    assert states(optimized, inputs[0]).equal(expected)
    assert len(seen) == 1
    # The plan of the other layer, and that of the attention of this one.
    assert len(runs) == 2
    hook.remove()
    assert states(optimized, inputs[0]).equal(expected)
    assert len(seen) == 1


@torch.no_grad()
def test_hooks_after_a_reset():
    """A module may get new, empty hooks: those that are added to them later are called."""
    model, _, inputs = made("Bert")
    optimized, seen = headlane.torch.optimize(model), []
    inside = optimized.encoder.layer[0].output.dense
    for _ in range(2):
        states(optimized, inputs[0])
    inside._forward_hooks = OrderedDict()
    inside.register_forward_hook(lambda module, given, output: seen.append(output))
    states(optimized, inputs[0])
    assert len(seen) == 1


@torch.no_grad()
def test_states_and_attentions():
    model, _, inputs = made("Bert")
    optimized = headlane.torch.optimize(model)
    for given in inputs:
        ours = optimized(**given, output_hidden_states=True)
        theirs = model(**given, output_hidden_states=True)
        assert len(ours.hidden_states) == 3
        for one, other in zip(ours.hidden_states, theirs.hidden_states):
            torch.testing.assert_close(one, other, rtol=0, atol=2e-5)
    for each in (model, optimized):
        each.set_attn_implementation("eager")
    ours, theirs = (each(**inputs[1], output_attentions=True).attentions for each in (optimized, model))
    for one, other in zip(ours, theirs):
        torch.testing.assert_close(one, other, rtol=0, atol=2e-5)


@pytest.mark.parametrize("fault", ["raises", "another shape", "another number"])
@torch.no_grad()
def test_a_plan_that_is_wrong(fault, monkeypatch):
    """It is found in the first call, whose result is right."""
    model, _, inputs = made("Bert")
    optimized = headlane.torch.optimize(model)
    run = _fused.Plan.run

    def wrong(plan, tensors):
        result = run(plan, tensors)
        if not plan.is_deep or isinstance(result, tuple):
            return result
        if fault == "raises":
            raise ValueError
        return result[:1] if fault == "another shape" else result + 0.01

    monkeypatch.setattr(_fused.Plan, "run", wrong)
    for _ in range(3):
        torch.testing.assert_close(states(optimized, inputs[1]), states(model, inputs[1]), rtol=0, atol=2e-5)


def test_gradients_and_training(runs):
    model, _, inputs = made("Bert")
    optimized = headlane.torch.optimize(model)
    layer, x = optimized.encoder.layer[0], normal(2, 5, 24)
    expected = layer(x)
    runs.clear()
    layer(x.clone().requires_grad_()).sum().backward()
    assert runs == []
    optimized.train()
    torch.manual_seed(1)
    assert not layer(x).equal(expected)
    assert runs == []
    assert layer.eval()(x).equal(expected)
    assert len(runs) == 1
    layer.attention.output.dropout.train()
    assert not layer(x).equal(expected)
