"""headlane.torch: packed weights, what reads them and what would change them; memory; fewer bits."""

import copy
import gc
import io
import weakref

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import headlane.torch  # noqa: E402
from headlane.torch._report import Record  # noqa: E402
from torch import nn  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402
from torch_cases import MODELS, Tied, X, close, normal, seeded  # noqa: E402


@torch.no_grad()
def test_memory_is_released():
    model = seeded(nn.Linear, 64, 64)
    weight = weakref.ref(model.weight)
    headlane.torch.optimize(model, inplace=True)
    gc.collect()
    assert weight() is None


@torch.no_grad()
def test_a_parameter_that_somebody_keeps():
    """An optimizer that was made before has still the parameters of the restored model."""
    model = seeded(nn.Linear, 8, 8)
    weight = model.weight
    headlane.torch.optimize(model, inplace=True)
    assert model.weight is not weight
    headlane.torch.restore(model)
    assert model.weight is weight
    assert weight.requires_grad


@torch.no_grad()
@pytest.mark.parametrize("shape", [(4,), (2, 4, 4)])
def test_weights_that_are_no_matrices(shape, capsys):
    linear = nn.Linear(4, 4).eval()
    linear.weight = nn.Parameter(normal(*shape))
    optimized = headlane.torch.optimize(linear)
    assert type(optimized) is nn.Linear
    assert optimized.weight.equal(linear.weight)
    headlane.torch.report(optimized)
    assert "not packed: " in capsys.readouterr().out


def test_changes_of_a_weight():
    model = seeded(nn.Linear, 8, 8)
    reference = model.weight.clone()
    optimized = headlane.torch.optimize(model)
    weight = optimized.weight
    torch.testing.assert_close(weight + 0, reference, rtol=0, atol=0)
    torch.testing.assert_close(weight[2:4].T @ weight[2:4], reference[2:4].T @ reference[2:4])
    assert weight.mean() == reference.mean()
    changes = [
        lambda: weight.zero_(),
        lambda: weight.data.mul_(2),
        lambda: weight.__setitem__(0, 1.0),
        lambda: weight[0].zero_(),
        lambda: weight.view(-1).add_(1),
        lambda: nn.init.normal_(weight),
        lambda: torch.add(weight, 1, out=weight),
        lambda: setattr(weight, "data", reference),
        lambda: torch._foreach_add_([weight], 1.0),
    ]
    for change in changes:
        with pytest.raises(RuntimeError, match=r"packed|inference tensor|Inplace update"):
            change()
    torch.testing.assert_close(optimized.weight + 0, reference, rtol=0, atol=0)


@pytest.mark.parametrize("weights", [None, "int8"])
def test_arrays_and_lists_of_a_weight(weights):
    """Arrays cannot be written to; what would share memory is refused."""
    model = seeded(nn.Linear, 8, 8)
    reference, weight = model.weight.detach(), headlane.torch.optimize(model, weights).weight.detach()
    for ours, theirs in ((weight, reference), (weight[1], reference[1])):
        assert ours.tolist() == theirs.tolist()
        for array in (ours.numpy(), np.asarray(ours)):
            assert np.array_equal(array, theirs.numpy())
            with pytest.raises(ValueError, match="read-only"):
                array.fill(0)
        for refused in (torch.from_dlpack, np.from_dlpack, torch.Tensor.share_memory_):
            with pytest.raises(RuntimeError, match="a packed weight, which has no memory of its own"):
                refused(ours)


@torch.no_grad()
def test_calls_that_are_watched():
    """Modes that see operators see those of PyTorch."""
    model = seeded(lambda: nn.Sequential(nn.Linear(24, 24), nn.GELU(), nn.LayerNorm(24)))
    optimized = headlane.torch.optimize(model)
    optimized(X)
    for given in (X, 2 * X):
        torch.testing.assert_close(make_fx(optimized)(X)(given), model(given))
    with FlopCounterMode(display=False) as counted:
        optimized(X)
    assert counted.get_total_flops() == 2 * 10 * 24 * 24


@torch.no_grad()
def test_another_weight():
    """A module whose weight is replaced computes with the new one."""
    model, x = seeded(nn.Linear, 24, 24), X
    new = nn.Parameter(normal(24, 24, seed=7))
    expected = nn.functional.linear(x, new, model.bias)

    optimized = headlane.torch.optimize(model)
    optimized.weight = new
    torch.testing.assert_close(optimized(x), expected, rtol=0, atol=0)

    optimized = headlane.torch.optimize(model)
    given = {"weight": new, "bias": model.bias}
    torch.testing.assert_close(torch.func.functional_call(optimized, given, (x,)), expected, rtol=0, atol=0)

    for options in ({}, {"weights": "int8"}):
        tied = headlane.torch.optimize(seeded(Tied), **options)
        tied.embedding.weight = nn.Parameter(normal(50, 24, seed=7))
        assert tied.embedding(torch.tensor([3])).equal(tied.embedding.weight[3:4])

    class Negative(nn.Module):
        def forward(self, weight):
            return -weight

    optimized = headlane.torch.optimize(model)
    nn.utils.parametrize.register_parametrization(optimized, "weight", Negative())
    expected = nn.functional.linear(x, -model.weight, model.bias)
    torch.testing.assert_close(optimized(x), expected, rtol=0, atol=0)


STORED = {
    "bfloat16": (2**-8, 0.55),
    "float16": (2**-11, 0.55),
    "int8": (2**-7, 0.4),
    "int8_group32": (2**-7, 0.4),
    "int4_group32": (2**-3, 0.35),
}


@pytest.mark.parametrize("weights", STORED)
@pytest.mark.parametrize("release", [False, True])
@torch.no_grad()
def test_fewer_bits(weights, release):
    model = seeded(lambda: nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 64)))
    x = normal(3, 256)
    optimized = headlane.torch.optimize(model, weights, release=release)
    decoded = copy.deepcopy(model)
    for i in (0, 2):
        packed = headlane.PackedMatrix(model[i].weight.T, dtype=weights)
        decoded[i].weight.copy_(torch.from_numpy(packed.unpack()).T)
    close(optimized(x), decoded(x))
    error, share = STORED[weights]
    assert (optimized(x) - model(x)).abs().max() < 4 * error * model(x).abs().max()
    record = Record.of(optimized)
    assert record.after <= share * record.before if release else record.after > record.before
    expected = decoded if release else model
    for ours, theirs in zip(optimized.state_dict().values(), expected.state_dict().values()):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    if release:
        with pytest.raises(ValueError, match=f"restore: the weights were rounded to {weights} and released"):
            headlane.torch.restore(optimized)
        return
    headlane.torch.restore(optimized)
    torch.testing.assert_close(optimized(x), model(x), rtol=0, atol=0)


@torch.no_grad()
def test_weights_that_do_not_fit(capsys):
    """They stay what they are, and the report says so."""
    model = seeded(lambda: nn.Sequential(nn.Linear(24, 24), nn.Linear(24, 24)))
    model[0].weight[3, 4] = -65520
    model[1].weight[3, 4] = 65519
    optimized = headlane.torch.optimize(model, "float16")
    headlane.torch.report(optimized)
    assert "not packed: a weight of 65520 does not fit into float16" in capsys.readouterr().out
    assert type(optimized[0]) is nn.Linear
    assert optimized(X).isfinite().all()


@pytest.mark.parametrize(
    ("weights", "activations"),
    [("int8", "int8"), ("int8_group32", "int8"), ("int4_group32", "int8"), ("bfloat16", "bfloat16")],
)
@torch.no_grad()
def test_rounded_activations(weights, activations):
    """The bits of headlane.linear()."""
    model = seeded(nn.Linear, 100, 40)
    x = normal(3, 100)
    packed = headlane.PackedMatrix(model.weight.T, dtype=weights)
    expected = headlane.linear(x, packed, model.bias, activations=activations)
    optimized = headlane.torch.optimize(model, weights, activations)
    torch.testing.assert_close(optimized(x), expected, rtol=0, atol=0)
    compiled = torch.compile(optimized, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), expected, rtol=0, atol=0)
    attention = headlane.torch.optimize(MODELS["encoder layer"][0]().eval(), weights, activations)
    assert attention(X).isfinite().all()


@torch.no_grad()
def test_activations_beside_weights_that_keep_their_type():
    """Where the weights are of bfloat16, and the report says so."""
    model = nn.Sequential(seeded(nn.Linear, 24, 24).bfloat16(), seeded(nn.Linear, 24, 8)).eval()
    optimized = headlane.torch.optimize(model, activations="bfloat16")
    assert [x.what for x in Record.of(optimized).rows] == ["linear, bfloat16 by bfloat16", "linear, float32"]
    x, whole = normal(3, 24), headlane.torch.optimize(model[0], "bfloat16", "bfloat16")
    torch.testing.assert_close(optimized[0](x.bfloat16()), whole(x.bfloat16()), rtol=0, atol=0)
    torch.testing.assert_close(optimized[1](x), headlane.torch.optimize(model[1])(x), rtol=0, atol=0)


@torch.no_grad()
def test_bfloat16_models_keep_their_type():
    model = seeded(nn.Linear, 24, 24).bfloat16()
    record = Record.of(headlane.torch.optimize(model, inplace=True))
    assert record.after < 1.5 * record.before
    assert model.weight.parts[0].matrix.dtype == "bfloat16"
    wide = headlane.torch.optimize(seeded(nn.Linear, 24, 24).bfloat16(), "float32", release=True)
    assert wide.weight.parts[0].matrix.dtype == "float32"
    headlane.torch.restore(wide)  # nothing was rounded
    assert wide.weight.dtype == torch.bfloat16


@pytest.mark.parametrize("parts", [("mlp", ""), ("", "mlp"), ("head", "mlp", "")])
def test_parts_that_are_optimized_by_themselves(parts):
    """restore() and report() of the model are those of its parts, too."""
    model = seeded(Tied)
    whole = io.StringIO()
    headlane.torch.report(headlane.torch.optimize(model), whole)
    model.mlp[0].weight.requires_grad_(False)
    trained = {name: x.requires_grad for name, x in model.named_parameters()}
    kinds = [type(x) for x in model.modules()]
    with torch.no_grad():
        expected = model(torch.arange(5))
        for part in parts:
            headlane.torch.optimize(model.get_submodule(part), inplace=True)
        close(model(torch.arange(5)), expected)
        text = io.StringIO()
        headlane.torch.report(model, text)
        if "head" not in parts:  # alone, its weight does not replace that of the embedding
            assert sorted(text.getvalue().split()) == sorted(whole.getvalue().split())
        headlane.torch.restore(model)
        torch.testing.assert_close(model(torch.arange(5)), expected, rtol=0, atol=0)
    assert {name: x.requires_grad for name, x in model.named_parameters()} == trained
    assert [type(x) for x in model.modules()] == kinds
    assert all(Record.of(x) is None for x in model.modules())
    assert model.head.weight is model.embedding.weight
    headlane.torch.optimize(model.mlp)


@torch.no_grad()
def test_tied_weights_are_held_once():
    model = seeded(Tied)
    headlane.torch.optimize(model, inplace=True)
    assert model.head.weight is model.embedding.weight
    state = model.state_dict()
    assert state["head.weight"].data_ptr() == state["embedding.weight"].data_ptr()
    assert len(list(model.parameters())) == 5
    headlane.torch.restore(model)
    assert model.head.weight is model.embedding.weight
