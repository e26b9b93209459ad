"""transformers: settings that are refused by name, models that keep their own attention, and which
masks are read.
"""

import copy
import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
import headlane.transformers  # noqa: E402


def tensors(q_length=5, kv_length=5, heads=2, dim=8):
    generator = torch.Generator().manual_seed(0)
    shapes = (1, heads, q_length, dim), (1, heads, kv_length, dim), (1, heads, kv_length, dim)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def attend(*arguments, **options):
    return headlane.transformers.attention_forward(torch.nn.Module().eval(), *arguments, **options)[0]


@pytest.mark.parametrize("name", ["cache", "output_attentions", "gate", "block_table", "scores_scale"])
def test_unknown_keywords_are_refused_by_name(name):
    with pytest.raises(ValueError, match=f"`{name}`"):
        attend(*tensors(), None, **{name: torch.ones(1)})
    attend(*tensors(), None, **{name: None})


@pytest.mark.parametrize(
    "mask",
    [
        torch.ones(1, 1, 5, 5, dtype=torch.int64),
        torch.ones(1, 1, 5, 5, dtype=torch.float64),
        torch.ones(1, 1, 5, 5, dtype=torch.uint8),
        torch.ones(1, 5, dtype=torch.bool),
        [[True]],
        {"full_attention": None},
    ],
    ids=["int64", "float64", "uint8", "two dimensions", "list", "dict"],
)
def test_unknown_masks_are_refused(mask):
    with pytest.raises(ValueError, match="attention_mask"):
        attend(*tensors(), mask)


def test_no_mask_means_no_mask():
    """The mask decides whether attention is causal, not the module."""
    q, k, v = tensors()
    expected = headlane.scaled_dot_product_attention(q, k, v).transpose(1, 2)
    for module in (torch.nn.Module(), torch.nn.Module()):
        got, _ = headlane.transformers.attention_forward(module, q, k, v, None)
        torch.testing.assert_close(got, expected, rtol=0, atol=0)
        module.is_causal = True
        got, _ = headlane.transformers.attention_forward(module, q, k, v, None)
        torch.testing.assert_close(got, expected, rtol=0, atol=0)


def causal_mask(q_length, kv_length, q_offset=0):
    return headlane.transformers.headlane_mask(
        batch_size=1, q_length=q_length, kv_length=kv_length, q_offset=q_offset
    )


@pytest.mark.parametrize(("q_length", "kv_length", "q_offset"), [(5, 5, 0), (1, 5, 4), (3, 5, 0)])
def test_plain_causal_masks_are_not_read(q_length, kv_length, q_offset, monkeypatch):
    q, k, v = tensors(q_length, kv_length)
    mask, given = causal_mask(q_length, kv_length, q_offset), []
    original = headlane.scaled_dot_product_attention
    monkeypatch.setattr(
        headlane,
        "scaled_dot_product_attention",
        lambda *a, **o: given.append((o["attn_mask"] is not None, o["is_causal"])) or original(*a, **o),
    )
    got, copied = attend(q, k, v, mask), attend(q, k, v, mask.clone())
    assert given == [(False, q_length > 1), (True, False)]
    torch.testing.assert_close(got, copied, rtol=0, atol=0)
    bias = torch.randn(1, 2, q_length, kv_length, generator=torch.Generator().manual_seed(1))
    with_bias, copied = (attend(q, k, v, x, position_bias=bias) for x in (mask, mask.clone()))
    torch.testing.assert_close(with_bias, copied, rtol=0, atol=0)
    assert given[2:] == [(True, q_length > 1), (True, False)]


def test_masks_that_are_left_away_for_other_reasons_are_read():
    """All keys are older than all queries here, and "sdpa" would take the mask for a triangle."""
    q, k, v = tensors()
    mask = causal_mask(5, 5, q_offset=5)
    assert mask.all()
    torch.testing.assert_close(attend(q, k, v, mask), attend(q, k, v, None), rtol=0, atol=0)


def test_part_of_a_causal_mask_is_read():
    """The last queries only, as Gemma 4 computes: the mask of a slice is no longer causal from its
    first row on.
    """
    q, k, v = tensors()
    mask = causal_mask(5, 5)
    got = attend(q[:, :, 3:], k, v, mask[:, :, 3:])
    torch.testing.assert_close(got, attend(q, k, v, mask)[:, 3:], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_causal_mask_that_is_changed_is_read(mode):
    q, k, v = tensors()
    with mode():
        mask = causal_mask(5, 5)
        mask[..., 3, 1] = False
        torch.testing.assert_close(attend(q, k, v, mask), attend(q, k, v, mask.clone()), rtol=0, atol=0)


def test_dropout_counts_in_training_only():
    module = torch.nn.Module()
    with pytest.raises(ValueError, match=r"model\.eval"):
        headlane.transformers.attention_forward(module.train(), *tensors(), None, dropout=0.1)
    got, _ = headlane.transformers.attention_forward(module.eval(), *tensors(), None, dropout=0.1)
    torch.testing.assert_close(got, attend(*tensors(), None), rtol=0, atol=0)


OWN = {
    "MPNet": (transformers.MPNetConfig, transformers.MPNetModel),
    "BLOOM": (transformers.BloomConfig, transformers.BloomForCausalLM),
    "RoFormer": (transformers.RoFormerConfig, transformers.RoFormerModel),
}


def small(config_class, **options):
    fields = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    return config_class(**fields, **options)


@torch.no_grad()
@pytest.mark.parametrize("name", OWN)
def test_attention_of_its_own_is_kept_and_said(name, tmp_path):
    config_class, model_class = OWN[name]
    model = model_class(small(config_class, attn_implementation="eager")).eval()
    model.save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match=f"{model_class.__name__} computes attention in code of its own"):
        loaded = model_class.from_pretrained(tmp_path, attn_implementation="headlane").eval()
    assert loaded.config._attn_implementation == "eager"
    ids = torch.randint(3, 99, (2, 7), generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1] * 7])
    for attention_mask in (None, mask):
        expected = model(input_ids=ids, attention_mask=attention_mask)[0]
        got = loaded(input_ids=ids, attention_mask=attention_mask)[0]
        torch.testing.assert_close(got, expected, rtol=0, atol=0)


def test_others_are_made_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = transformers.BertModel(small(transformers.BertConfig, attn_implementation="headlane"))
    assert model.config._attn_implementation == "headlane"
    copy.deepcopy(model).set_attn_implementation("headlane")
