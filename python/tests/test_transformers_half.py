"""Hugging Face models in bfloat16 and float16."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
import headlane.transformers  # noqa: E402
from half import assert_rounded_once  # noqa: E402
from test_transformers import IDS, MODELS, PADDED, run, small  # noqa: E402


@pytest.fixture
def calls():
    """How often attention was called, by the implementation "checked": headlane's, which must return the
    float32 result of the widened arguments, rounded once.
    """
    count = []
    attention = headlane.transformers.attention_forward

    def widened(x):
        return x.float() if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    def checked(module, *tensors, **options):
        count.append(1)
        result, _ = attention(module, *tensors, **options)
        wide = {name: widened(x) for name, x in options.items()}
        exact, _ = attention(module, *map(widened, tensors), **wide)
        assert exact.dtype == torch.float32
        assert_rounded_once(result, exact.numpy(), str(tensors[0].dtype))
        return result, None

    transformers.AttentionInterface.register("checked", checked)
    transformers.AttentionMaskInterface.register("checked", headlane.transformers.headlane_mask)
    return count


@pytest.mark.parametrize("mask", [None, PADDED], ids=["all", "padded"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_models(name, dtype, mask, calls):
    """The result is about as far from the model's in float32 as with "eager", which rounds more often."""
    model = small(name).to(dtype)
    rows = slice(None) if mask is None else mask.bool()
    exact = run(copy.deepcopy(model).float(), "eager", attention_mask=mask)[rows].double()
    got = run(model, "checked", attention_mask=mask)[rows]
    assert got.dtype == dtype
    assert len(calls) >= 2
    torch.testing.assert_close(run(model, "headlane", attention_mask=mask)[rows], got, rtol=0, atol=0)
    eager = run(model, "eager", attention_mask=mask)[rows]
    ours, theirs = (torch.linalg.vector_norm(y.double() - exact) for y in (got, eager))
    assert ours <= 1.2 * theirs


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generate(dtype, cache, calls):
    model = small("grouped heads: Llama").to(dtype)
    model.set_attn_implementation("checked")
    result = model.generate(
        IDS,
        attention_mask=PADDED,
        max_new_tokens=6,
        do_sample=False,
        cache_implementation=cache,
        disable_compile=True,
        output_logits=True,
        return_dict_in_generate=True,
    )
    assert {logits.dtype for logits in result.logits} <= {dtype, torch.float32}
    assert len(calls) == 12


@torch.no_grad()
def test_compiled():
    model = small("grouped heads: Llama").bfloat16()
    expected = run(model, "headlane", attention_mask=PADDED)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    got = compiled(input_ids=IDS, attention_mask=PADDED)[0]
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got, expected, rtol=2e-2, atol=2e-2)


@torch.no_grad()
def test_masks_of_16_bits():
    """Float masks of the model's type are added to float32 scores; other types are refused by name."""
    generator = torch.Generator().manual_seed(0)
    q, mask = (torch.randn(1, 2, 5, n, generator=generator).bfloat16() for n in (8, 5))
    forward, module = headlane.transformers.attention_forward, torch.nn.Module()
    exact, _ = forward(module, *[q.float()] * 3, mask.float())
    result, _ = forward(module, q, q, q, mask)
    assert_rounded_once(result, exact.numpy(), "torch.bfloat16")
    with pytest.raises(
        ValueError, match=r"attention_mask of torch\.float64, only bool, float32, bfloat16 and"
    ):
        forward(module, q, q, q, mask.double())
