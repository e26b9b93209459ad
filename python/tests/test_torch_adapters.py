"""headlane.torch: adapters of PEFT on models that are optimized, before or after."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
peft = pytest.importorskip("peft", reason="PEFT is not installed")
import headlane.torch  # noqa: E402
from headlane.torch._weight import PackedWeight  # noqa: E402
from torch_cases import close, seeded  # noqa: E402

SIZES = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
IDS = torch.arange(3, 21).view(2, 9)
LORA = {"r": 4, "target_modules": ["q_proj", "v_proj", "down_proj"]}
KINDS = {
    "LoRA": lambda: peft.LoraConfig(**LORA),
    "DoRA": lambda: peft.LoraConfig(**LORA, use_dora=True),
    "LoRA of a head": lambda: peft.LoraConfig(**LORA, modules_to_save=["lm_head"]),
    "IA3": lambda: peft.IA3Config(target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"]),
    "OFT": lambda: peft.OFTConfig(r=0, oft_block_size=8, target_modules=["q_proj"]),
    "VeRA": lambda: peft.VeraConfig(r=4, target_modules=["q_proj"]),
    "norms": lambda: peft.LNTuningConfig(target_modules=["input_layernorm"]),
    "prefix": lambda: peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3),
}
SAVED = ("lora_", "ia3_", "oft_", "vera_lambda", "ln_tuning", "prompt_encoder", "modules_to_save")


def base():
    return seeded(transformers.LlamaForCausalLM, transformers.LlamaConfig(**SIZES))


def randomised(model):
    """Adapters that do something."""
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if any(x in name for x in SAVED):
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def logits(model, **options):
    with torch.no_grad():
        return model(IDS, **options).logits


@pytest.mark.parametrize("kind", KINDS)
def test_kinds(kind):
    theirs = randomised(peft.get_peft_model(base(), KINDS[kind]()))
    ours = headlane.torch.optimize(theirs)
    assert any(isinstance(x, PackedWeight) for x in ours.parameters())
    close(logits(ours), logits(theirs))
    with theirs.disable_adapter(), ours.disable_adapter():
        close(logits(ours), logits(theirs))
    close(logits(ours), logits(theirs))
    options = {"input_ids": IDS, "max_new_tokens": 4, "do_sample": False, "eos_token_id": None}
    assert ours.generate(**options).equal(theirs.generate(**options))
    headlane.torch.restore(ours)
    assert logits(ours).equal(logits(theirs))


def test_several_adapters():
    theirs = peft.get_peft_model(base(), KINDS["LoRA"]())
    theirs.add_adapter("other", peft.LoraConfig(**{**LORA, "r": 8}))
    randomised(theirs)
    ours = headlane.torch.optimize(theirs)
    for names in ("other", ["default", "other"], "default"):
        for each in (theirs, ours):
            each.base_model.set_adapter(names)
        close(logits(ours), logits(theirs))
    mixed = {"adapter_names": ["other", "__base__"]}
    close(logits(ours, **mixed), logits(theirs, **mixed))
    close(logits(copy.deepcopy(ours).unload()), logits(copy.deepcopy(theirs).unload()))


def test_merging_needs_the_model_itself():
    theirs = randomised(peft.get_peft_model(base(), KINDS["LoRA"]()))
    ours = headlane.torch.optimize(theirs)
    before = logits(ours)
    for merge in (ours.merge_adapter, ours.merge_and_unload):
        with pytest.raises(RuntimeError, match=r"is packed and cannot be changed; headlane.torch.restore"):
            merge()
    assert logits(ours).equal(before)
    headlane.torch.restore(ours)
    assert logits(ours.merge_and_unload()).equal(logits(theirs.merge_and_unload()))


@pytest.mark.parametrize("weights", [None, "int8"])
def test_training_of_adapters(weights):
    """Of an optimized model: those of the same model as it is, but for rounded weights."""
    losses = []
    for model in (base(), headlane.torch.optimize(base(), weights)):
        torch.manual_seed(2)
        model = peft.get_peft_model(model, KINDS["LoRA"]()).train()
        trained = [x for x in model.parameters() if x.requires_grad]
        assert not any(isinstance(x, PackedWeight) for x in trained)
        optimizer = torch.optim.AdamW(trained, lr=0.01)
        losses.append([])
        for _ in range(4):
            loss = model(IDS, labels=IDS).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
        assert losses[-1] == sorted(losses[-1], reverse=True)
        expected = logits(model.eval())
        close(logits(headlane.torch.optimize(model)), expected)
    theirs, ours = losses
    assert ours == pytest.approx(theirs, rel=1e-5 if weights is None else 0.02)
