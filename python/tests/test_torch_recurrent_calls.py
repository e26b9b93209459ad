"""Calls of linear attention in optimized models that headlane takes, or leaves to PyTorch."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers.models.qwen3_5", reason="transformers is too old")
import headlane.torch  # noqa: E402
from headlane.torch import _recurrent_calls  # noqa: E402
from torch_cases import normal  # noqa: E402
from transformers import DynamicCache, Qwen3_5TextConfig  # noqa: E402
from transformers.models.mamba2.modeling_mamba2 import mamba2_chunk_scan  # noqa: E402
from transformers.models.qwen3_5.modeling_qwen3_5 import torch_chunk_gated_delta_rule  # noqa: E402


class Rule(torch.nn.Module):
    def forward(self, *given, cache=None, **options):
        return torch_chunk_gated_delta_rule(*given, **options)


class Scan(torch.nn.Module):
    def forward(self, *given, **options):
        return mamba2_chunk_scan(*given, **options)


def replaced(module):
    made = headlane.torch.optimize(torch.nn.Sequential(module).eval())[0]
    assert isinstance(made, _recurrent_calls.CallsRecurrent)
    return made


def tokens(key_dim=8, value_dim=5, length=6):
    given = [normal(1, length, 2, key_dim), normal(1, length, 2, key_dim, seed=1)]
    given.append(normal(1, length, 4, value_dim, seed=2))
    return [*given, -normal(1, length, 4, seed=3).abs(), normal(1, length, 4, seed=4).abs()]


NORMALIZED = {"use_qk_l2norm_in_kernel": True, "output_final_state": True}


@pytest.mark.parametrize("dims", [(513, 5), (8, 513)])
@torch.no_grad()
def test_heads_that_are_too_large(dims):
    given = tokens(*dims)
    (expected, last), (got, state) = Rule()(*given, **NORMALIZED), replaced(Rule())(*given, **NORMALIZED)
    assert torch.equal(expected, got)  # by PyTorch
    assert torch.equal(last, state)


@torch.no_grad()
def test_scan_with_heads_that_are_too_large():
    for state, head_dim in ((513, 4), (8, 513)):
        given = [normal(1, 6, 4, head_dim), normal(1, 6, 4, seed=1).abs(), -normal(4, seed=2).abs()]
        given += [normal(1, 6, 2, state, seed=3), normal(1, 6, 2, state, seed=4), 4]
        assert torch.equal(Scan()(*given), replaced(Scan())(*given))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_modes_and_what_is_packed(mode):
    rule, given = replaced(Rule()), tokens()
    with mode():
        (expected, _), (got, _) = Rule()(*given, **NORMALIZED), rule(*given, **NORMALIZED)
        assert torch.allclose(got, expected, atol=1e-5)
        assert not torch.equal(got, expected)
        state = torch.zeros(1, 4, 8, 5)
        rule(*given, initial_state=state, **NORMALIZED)
        assert not state.any()
        for module in (Rule(), rule):
            with pytest.raises(ValueError, match="packed sequences"):
                module(*given, cu_seqlens=torch.tensor([0, 6]), **NORMALIZED)


@torch.no_grad()
def test_a_cache_is_written_only_by_the_layer_that_has_the_state():
    config = Qwen3_5TextConfig(num_hidden_layers=2, layer_types=["linear_attention"] * 2)
    for index in (None, 0, 1, 7):
        cache, rule = DynamicCache(config=config), replaced(Rule())
        cache.update_recurrent_state(torch.ones(1, 4, 8, 5), 1)
        cache.layers[1].has_previous_state[0] = True
        if index is not None:
            rule.layer_idx = index
        state = cache.get_recurrent_state(1)
        _, last = rule(*tokens(), cache=cache, initial_state=state, **NORMALIZED)
        assert (last is state) == (index == 1)
        assert bool((state == 1).all()) == (index != 1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@torch.no_grad()
def test_default_type_and_device_change_nothing(dtype):
    rule, scan, given = replaced(Rule()), replaced(Scan()), tokens()
    scanned = [normal(1, 6, 4, 3), normal(1, 6, 4, seed=1).abs(), -normal(4, seed=2).abs()]
    scanned += [normal(1, 6, 2, 8, seed=3), normal(1, 6, 2, 8, seed=4), 4]
    expected = [*rule(*given, **NORMALIZED), *scan(*scanned, return_final_states=True)]
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(dtype)
        with torch.device("meta"):
            got = [*rule(*given, **NORMALIZED), *scan(*scanned, return_final_states=True)]
    finally:
        torch.set_default_dtype(before)
    for x, y in zip(expected, got, strict=True):
        assert y.dtype is torch.float32
        assert torch.equal(x, y)
