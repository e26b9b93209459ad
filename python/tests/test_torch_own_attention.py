"""headlane.torch: attention of transformers in calls that are not for inference is what the model had."""

import pickle

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
import headlane.torch  # noqa: E402
from expert_cases import LATENT, LLAMA, SIZES  # noqa: E402
from headlane.torch._transformers import _register  # noqa: E402
from torch_cases import normal, seeded  # noqa: E402

# Attention with what PyTorch's does not have, and keys that the code of a model chooses.
CODES = {
    "Llama": LLAMA,
    "GptOss": {**LLAMA, "num_local_experts": 4, "head_dim": 8},  # sinks
    "Gemma2": {**LLAMA, "head_dim": 8, "sliding_window": 4, "attn_logit_softcapping": 0.5},
    "DeepseekV32": {
        **LATENT,
        **{"num_key_value_heads": 4, "index_n_heads": 2, "index_head_dim": 8, "index_topk": 3},
    },
    "T5": {**SIZES, "d_model": 32, "d_kv": 8, "d_ff": 40, "num_layers": 2, "num_heads": 4},  # position biases
}


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("name", CODES)
def test_training_gradients_and_autocast_have_the_attention_of_the_model(name, implementation):
    config = getattr(transformers, f"{name}Config", None)
    if config is None:
        pytest.skip(f"this transformers has no {name}")
    kind = transformers.AutoModelForSeq2SeqLM if name == "T5" else transformers.AutoModelForCausalLM
    model = seeded(kind.from_config, config(**CODES[name]))
    try:
        model.set_attn_implementation(implementation)
    except ValueError:
        pytest.skip(f"{name} has no {implementation}")
    optimized = headlane.torch.optimize(model)
    ids = torch.arange(3, 21).view(2, 9)
    mask = torch.ones_like(ids)
    mask[0, :4] = 0
    given = {"attention_mask": mask, **({"decoder_input_ids": ids} if name == "T5" else {})}

    def results(each):
        embedded = each.get_input_embeddings()(ids).detach().requires_grad_()
        made = each(inputs_embeds=embedded, **given).logits
        made.square().mean().backward()
        return made.detach()[1], embedded.grad[1]

    def no_gradients(each):
        with torch.no_grad():
            return each(input_ids=ids, **given).logits[1:]

    for ours, theirs in zip(results(optimized), results(model)):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(no_gradients(optimized), no_gradients(model), rtol=0.02, atol=0.02)
    for each in (model, optimized):
        each.train()
    torch.manual_seed(3)
    expected = no_gradients(model)
    torch.manual_seed(3)
    torch.testing.assert_close(no_gradients(optimized), expected, rtol=1e-4, atol=1e-5)


def test_gradients_of_a_model_whose_eager_attention_has_a_name_of_its_own():
    config = transformers.Phi4MultimodalVisionConfig(
        hidden_size=32,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=28,
        crop_size=28,
        feature_layer=-2,
    )
    model = seeded(transformers.Phi4MultimodalVisionModel._from_config, config, attn_implementation="eager")
    optimized = headlane.torch.optimize(model)
    gradients = []
    for each in (model, optimized):
        pixels = normal(1, 3, 28, 28).requires_grad_()
        mask = torch.ones(1, 2, 2, dtype=torch.bool)
        each(pixels, patch_attention_mask=mask).last_hidden_state.square().mean().backward()
        gradients.append(pixels.grad)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("implementation", "form"), [("eager", "configuration"), ("eager", "argument"), ("sdpa", "argument")]
)
@pytest.mark.parametrize("name", ["Llama", "GPT2", "T5"])
@torch.no_grad()
def test_weights_that_the_caller_collects(name, implementation, form):
    """They are those that the model returned; sdpa has none."""
    sizes = {"vocab_size": 40, "n_embd": 32, "n_layer": 2, "n_head": 4} if name == "GPT2" else CODES[name]
    config = getattr(transformers, f"{name}Config")(**sizes)
    config._attn_implementation = implementation
    asked = {"output_attentions": True} if form == "argument" else {}
    if form == "configuration":
        config.output_attentions = True
    model = seeded(getattr(transformers, "T5EncoderModel" if name == "T5" else f"{name}Model"), config)
    optimized = headlane.torch.optimize(model)
    ids = torch.arange(3, 21).view(2, 9)
    ours, theirs = (each(ids, **asked).attentions for each in (optimized, model))
    assert len(theirs) == (2 if implementation == "eager" else 0)
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@torch.no_grad()
def test_a_pickle_in_another_process(implementation, monkeypatch):
    """Where nothing has registered the attentions that it names."""
    config = transformers.BertConfig(**SIZES)
    model = seeded(transformers.BertForMaskedLM, config)
    model.set_attn_implementation(implementation)
    optimized = headlane.torch.optimize(model).bert  # a part, which has no record of what was done
    pickled, ids = pickle.dumps(optimized), torch.arange(3, 21).view(2, 9)
    for interface in (transformers.AttentionInterface, transformers.AttentionMaskInterface):
        names = {name: x for name, x in interface._global_mapping.items() if "headlane_torch" not in name}
        monkeypatch.setattr(interface, "_global_mapping", names)
    _register.cache_clear()
    assert pickle.loads(pickled)(ids)[0].equal(optimized(ids)[0])


def blocked(mask):
    mask[..., 5, 2] = torch.finfo(mask.dtype).min
    return mask


CHANGES = {
    "in place": blocked,
    "copy": lambda mask: blocked(mask.clone()),
    "sum": lambda mask: (
        mask + torch.zeros(7, 7).index_put_((torch.tensor(5), torch.tensor(2)), torch.tensor(-1e9))
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_hooks_that_change_float_masks(change, mode):
    """Such masks are those of "eager"."""
    model = seeded(transformers.LlamaForCausalLM, transformers.LlamaConfig(**LLAMA))
    model.set_attn_implementation("eager")
    optimized, ids = headlane.torch.optimize(model), torch.arange(3, 17).view(2, 7)
    for each in (model, optimized):
        for layer in each.model.layers:
            layer.register_forward_pre_hook(
                lambda _, given, options: (
                    given,
                    {**options, "attention_mask": CHANGES[change](options["attention_mask"])},
                ),
                with_kwargs=True,
            )
    with mode():
        for batch in (1, 2):
            torch.testing.assert_close(
                optimized(ids[:batch]).logits, model(ids[:batch]).logits, rtol=0, atol=1e-5
            )


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@torch.no_grad()
def test_models_in_float64(implementation):
    model = seeded(transformers.LlamaForCausalLM, transformers.LlamaConfig(**LLAMA)).double()
    model.set_attn_implementation(implementation)
    optimized, ids = headlane.torch.optimize(model), torch.arange(3, 21).view(2, 9)
    assert optimized(ids).logits.equal(model(ids).logits)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@torch.no_grad()
def test_keywords_that_the_attention_of_the_model_ignores(implementation):
    model = seeded(transformers.LlamaForCausalLM, transformers.LlamaConfig(**LLAMA))
    model.set_attn_implementation(implementation)
    optimized, ids = headlane.torch.optimize(model), torch.arange(3, 21).view(2, 9)
    expected, ours = model(ids).logits, optimized(ids).logits
    assert optimized(ids, seq_idx=torch.zeros_like(ids)).logits.equal(ours)
    for _ in range(2):
        torch.testing.assert_close(optimized(ids, my_flag=True).logits, expected, rtol=0, atol=1e-5)
        assert optimized(ids, my_flag=False).logits.equal(ours)
