"""headlane.torch: the caches that layers of decoders are given, and copies of them."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
import headlane.torch  # noqa: E402
from decoder_cases import (  # noqa: E402
    CACHE,
    IDS,
    INPUTS,
    LLAMA,
    check_modules,
    close,
    entries,
    made,
    real,
    same,
    steps,
)
from headlane.torch import _fused  # noqa: E402
from torch_cases import normal, seeded  # noqa: E402

transformers.logging.set_verbosity_error()


@torch.no_grad()
def test_copies_of_a_cache():
    """Two continuations of a prompt, from its cache and a copy of it."""
    model = made("GPT2")
    optimized = headlane.torch.optimize(model)
    expected = [steps(model, {"input_ids": x}, steps(model, INPUTS[0])[1])[0] for x in (IDS, IDS.flip(1))]
    for copied in (copy.deepcopy, copy.copy):
        _, cache = steps(optimized, INPUTS[0])
        other = copied(cache)
        if copied is copy.copy:
            other.layers = [copy.copy(x) for x in cache.layers]
        before = [x.clone() for x in entries(cache)]
        one = steps(optimized, {"input_ids": IDS}, other)[0]
        assert same(entries(cache), before)
        two = steps(optimized, {"input_ids": IDS.flip(1)}, cache)[0]
        close(one, expected[0])
        close(two, expected[1])


LFM2 = transformers.Lfm2Config(**LLAMA, layer_types=["conv", "full_attention"])
QWEN3_5 = transformers.Qwen3_5TextConfig(
    **LLAMA,
    head_dim=8,
    layer_types=["linear_attention", "full_attention"],
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_key_head_dim=8,
    linear_value_head_dim=8,
)


CONFIGS = {"Lfm2": LFM2, "Qwen3_5": QWEN3_5}
if hasattr(transformers, "Lfm3Config"):  # whose heads are times numbers
    CONFIGS["Lfm3"] = transformers.Lfm3Config(**LLAMA, layer_types=["conv", "full_attention"])


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@torch.no_grad()
def test_states_beside_keys(config, decoder_runs, monkeypatch):
    """Layers with attention have plans where the cache also has the states of others, which are no keys."""
    model = seeded(transformers.AutoModelForCausalLM.from_config, config)
    optimized = headlane.torch.optimize(model)
    for given in INPUTS:
        steps(optimized, given)
        decoder_runs.clear()
        ours, theirs = (steps(each, given) for each in (optimized, model))
        with_keys = [plan for plan in decoder_runs if not plan.asks_if_single]
        assert [len(plan.with_room) for plan in with_keys] == [1] * 4
        close(real(ours[0], given), real(theirs[0], given))
        close(real(entries(ours[1]), given), real(entries(theirs[1]), given))
        check_modules(monkeypatch, ours, entries, steps, optimized, given)


class Packed(transformers.models.llama.modeling_llama.LlamaDecoderLayer):
    """A layer that is given its cache in a tuple."""

    def forward(self, x, position_embeddings, state=None):
        cache = None if state is None else state[0]
        mixed, _ = self.self_attn(x, position_embeddings, None, **{CACHE: cache})
        return self.mlp(x + mixed)


@torch.no_grad()
def test_a_cache_in_a_tuple(decoder_runs):
    """It is appended to once in each call, the first one as well."""
    layer = seeded(Packed, headlane.torch.optimize(made("Llama")).config, 0)
    optimized = headlane.torch.optimize(layer)
    ours, theirs = transformers.DynamicCache(), transformers.DynamicCache()
    x, tables = normal(2, 5, 32), (normal(1, 5, 8, seed=2), normal(1, 5, 8, seed=3))
    for _ in range(3):
        close([optimized(x, tables, (ours,))], [layer(x, tables, (theirs,))])
        close(entries(ours), entries(theirs))
    assert entries(ours)[0].shape[2] == 15
    assert decoder_runs


class OwnCache(transformers.DynamicCache):
    """One that counts its updates."""

    updates = 0

    def update(self, *arguments, **options):
        self.updates += 1
        return super().update(*arguments, **options)


@pytest.mark.parametrize("make", [OwnCache, lambda: transformers.StaticCache(made("Llama").config, 40)])
@torch.no_grad()
def test_other_caches(make, decoder_runs, monkeypatch):
    """No plan is made for them, as they cannot be copied by those who do not know them."""
    model = made("Llama")
    optimized = headlane.torch.optimize(model)
    recorded, of = [], _fused.Plan.of
    monkeypatch.setattr(_fused.Plan, "of", lambda *given: recorded.append(given) or of(*given))
    for _ in range(2):
        recorded.clear()
        ours, theirs = (steps(each, INPUTS[0], make()) for each in (optimized, model))
        close(ours[0], theirs[0])
        if isinstance(ours[1], OwnCache):
            assert ours[1].updates == theirs[1].updates == 8
    assert decoder_runs == recorded == []
