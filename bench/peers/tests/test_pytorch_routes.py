"""The contenders on PyTorch models: each with small ones, against eager mode."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

from ..cases import pytorch as cases
from ..workers import pytorch as worker

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from ..routes import pytorch, pytorch_models  # noqa: E402 (after what they need)

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch.jit and torch.ao, which will be removed

SHAPES = {
    "bert": cases.Shape("Bert", "BertModel", 1, 32, 64, 2, 1100),
    "vit": cases.Shape("ViT", "ViTModel", 1, 32, 64, 2),
    "whisper": cases.Shape("Whisper", "WhisperModel", 1, 32, 64, 2),
    "gpt2": cases.Shape("GPT-2", "GPT2LMHeadModel", 1, 32, 64, 2, 1100),
    "llama": cases.Shape("Llama", "LlamaForCausalLM", 1, 64, 96, 4, 1100, kv_heads=2, gated=True),
}
TOKENS = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("models")
    for name, shape in SHAPES.items():
        pytorch_models.build(shape).save_pretrained(made / name)
    return made


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    """Routes set these for a process of their own."""
    monkeypatch.setattr(pytorch, "NEW_TOKENS", TOKENS)
    threads, gradients = torch.get_num_threads(), torch.is_grad_enabled()
    yield
    torch.set_num_threads(threads)
    torch.set_grad_enabled(gradients)
    torch.jit.enable_onednn_fusion(False)


@pytest.fixture
def headlane_torch(monkeypatch):
    """In place of headlane.torch: zeros are added, and it is noted how it was called."""
    calls = []

    def optimize(model, **options):
        calls.append(options)
        return model

    headlane = types.ModuleType("headlane")
    headlane.torch = types.ModuleType("headlane.torch")
    headlane.torch.optimize = optimize
    headlane.__version__, headlane.isa, headlane.set_num_threads = "0.9", lambda: "avx2", lambda number: None
    monkeypatch.setitem(sys.modules, "headlane", headlane)
    monkeypatch.setitem(sys.modules, "headlane.torch", headlane.torch)
    return calls


def given(name: str, batch: int = 2) -> np.ndarray:
    random = np.random.default_rng(1)
    if name == "vit":
        return random.standard_normal((1, 3, 224, 224), np.float32)
    if name == "whisper":
        return random.standard_normal((1, 80, 3000), np.float32)
    return random.integers(5, 1100, (batch, 6))


def result(route, folder, name: str, op: str) -> tuple[np.ndarray, dict, object]:
    job, about = route.job(SHAPES[name], folder / name, op, given(name), 6)
    return np.asarray(job.result(job.call())), about, job


OPS = {"bert": "encode", "vit": "encode", "whisper": "encode", "gpt2": "prefill", "llama": "prefill"}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(
    ("kind", "bound"),
    [
        (pytorch.Prepacked, 1e-5),
        (pytorch.DynamicInt8, 0.1),
        (pytorch.EagerBfloat16, 0.1),
    ],
)
def test_everybody_gives_what_eager_mode_gives(folder, name, kind, bound):
    wanted, about, _ = result(pytorch.Eager(1), folder, name, OPS[name])
    made, _, _ = result(kind(1), folder, name, OPS[name])
    rows = {"bert": (2, 6, 32), "vit": (1, 197, 32), "whisper": (1, 1500, 32)}
    assert wanted.shape == made.shape == rows.get(name, (2, 1, 1100))
    np.testing.assert_allclose(made, wanted, atol=bound * np.abs(wanted).max())
    layers = SHAPES[name].weights + (SHAPES[name].head if OPS[name] == "prefill" else 0)
    assert (about["stored"], about["cached"]) == (4 * layers, 4)


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_frozen(folder, name):
    wanted, made = (result(kind(1), folder, name, OPS[name])[0] for kind in (pytorch.Eager, pytorch.Frozen))
    np.testing.assert_allclose(made, wanted, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_tokens_stand_behind_their_logits(folder, name):
    made, _, job = result(pytorch.Eager(1), folder, name, "generate")
    assert made.shape == (2, TOKENS + 1, 1101)
    assert np.array_equal(made[..., :-1].argmax(-1), made[..., -1])
    begin, _, _ = result(pytorch.Eager(1), folder, name, "prefill")
    np.testing.assert_allclose(made[:, 0, :-1], begin[:, 0], atol=1e-5)
    assert job.seconds() > 0
    other, _, _ = result(pytorch.Prepacked(1), folder, name, "generate")
    np.testing.assert_allclose(other, made, atol=1e-4)


def test_bytes_of_weights_as_they_are_stored(folder, headlane_torch):
    def stored(route, name):
        return route.job(SHAPES[name], folder / name, "prefill", given(name), 6)[1]["stored"]

    llama, gpt2 = (SHAPES[name].weights + SHAPES[name].head for name in ("llama", "gpt2"))
    assert stored(pytorch.EagerBfloat16(1), "llama") == 2 * llama
    assert stored(pytorch.DynamicInt8(1), "llama") == llama
    # GPT-2's layers are no nn.Linear, but its output layer is.
    assert stored(pytorch.DynamicInt8(1), "gpt2") == 4 * SHAPES["gpt2"].weights + SHAPES["gpt2"].head
    for weights, width in (("bfloat16", 2), ("int8", 1), ("int4_group32", 18 / 32)):
        assert stored(pytorch.Headlane(1, weights=weights), "gpt2") == width * gpt2


def test_headlane_optimises_in_place(folder, headlane_torch):
    route = pytorch.Headlane(1, weights="int8", activations="int8")
    assert route.about == "version=0.9\tisa=avx2"
    wanted, _, _ = result(pytorch.Eager(1), folder, "bert", "encode")
    made, about, _ = result(route, folder, "bert", "encode")
    assert np.array_equal(made, wanted)
    assert headlane_torch == [{"inplace": True, "release": True, "weights": "int8", "activations": "int8"}]
    assert about["seconds"] > 0


def test_headlane_optimises_a_model_in_bfloat16(folder, headlane_torch):
    route = pytorch.HeadlaneBfloat16(1, weights="bfloat16", activations="bfloat16")
    wanted, _, _ = result(pytorch.EagerBfloat16(1), folder, "bert", "encode")
    made, _, _ = result(route, folder, "bert", "encode")
    assert np.array_equal(made, wanted)


def test_without_headlane_torch_it_says_so(headlane_torch, monkeypatch):
    monkeypatch.setitem(sys.modules, "headlane.torch", None)
    with pytest.raises(ImportError):
        pytorch.Headlane(1)


def test_weights_are_in_memory_or_in_the_file(folder):
    for mapped in (False, True):
        model = pytorch_models.load(SHAPES["gpt2"], folder / "gpt2", mapped=mapped)
        assert model.lm_head.weight is model.transformer.wte.weight
        assert mapped or all(parameter.data_ptr() % 64 == 0 for parameter in model.parameters())


@pytest.mark.parametrize("loaded", [False, True])
def test_memory_of_optimising(folder, headlane_torch, monkeypatch, loaded):
    monkeypatch.setattr(worker, "SHAPES", SHAPES)
    made = worker.PytorchWorker(pytorch.Headlane(1))
    told = made.optimise("llama", str(folder / "llama") if loaded else None)
    assert set(told) == {"seconds", "eager", "eager_peak", "optimised", "peak"}
    assert told["eager_peak"] >= told["eager"]
    assert told["peak"] >= told["optimised"]


def test_a_call_of_a_small_layer(headlane_torch):
    for route in (pytorch.Eager(1), pytorch.Headlane(1)):
        assert 0 < worker.PytorchWorker(route).call(10) < 0.01
