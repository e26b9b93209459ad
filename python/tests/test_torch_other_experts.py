"""headlane.torch: modules like experts that compute something else, and matrices that do not fit."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
import headlane.torch  # noqa: E402
from expert_cases import experts_of, made, module  # noqa: E402
from headlane import _core  # noqa: E402
from headlane.torch._experts import Experts  # noqa: E402
from torch.nn.utils import parametrize  # noqa: E402
from torch_cases import close, normal  # noqa: E402


class Clamped(torch.nn.Module):
    """Experts whose gates do not grow without end, as those of some models."""

    def __init__(self, limit):
        super().__init__()
        self.gate_up_proj = torch.nn.Parameter(normal(3, 12, 8))
        self.down_proj = torch.nn.Parameter(normal(3, 8, 6, seed=1))
        self.act_fn = torch.nn.SiLU()
        self.limit = limit
        self.factor = 1.0

    def forward(self, x, index, factors):
        out = torch.zeros_like(x)
        for i in range(index.shape[1]):
            both = torch.einsum("thw,tw->th", self.gate_up_proj[index[:, i]], x)
            gate, up = both.chunk(2, -1)
            inner = self.act_fn(gate.clamp(max=self.limit)) * up * self.factor
            out += factors[:, i, None] * torch.einsum("twh,th->tw", self.down_proj[index[:, i]], inner)
        return out


@torch.no_grad()
def test_experts_that_compute_something_else(capsys):
    assert isinstance(headlane.torch.optimize(Clamped(1e9).eval()), Experts)
    clamped = headlane.torch.optimize(Clamped(20).eval())
    assert not isinstance(clamped, Experts)
    headlane.torch.report(clamped)
    assert "its experts are none of those known" in capsys.readouterr().out
    theirs, _, call = module("GptOss")
    theirs.config._experts_implementation = "eager"
    theirs.has_bias = False  # it says so, and is wrong
    assert not experts_of(headlane.torch.optimize(theirs))
    skipped = headlane.torch.optimize(made("Mixtral"), skip="*.experts")
    assert not experts_of(skipped)


CHANGES = {
    "another activation": lambda m: setattr(m, "act_fn", torch.nn.ReLU()),
    "a hook": lambda m: m.act_fn.register_forward_hook(lambda module, given, result: -result),
    "an attribute": lambda m: setattr(m, "factor", 2.0),
    "an attribute of the activation": lambda m: setattr(m.act_fn, "forward", torch.relu),
}


@pytest.mark.parametrize("change", CHANGES)
@torch.no_grad()
def test_experts_that_are_changed(change):
    """By their own code, compiled too."""
    theirs = Clamped(1e9).eval()
    optimized = headlane.torch.optimize(theirs)
    call = normal(2, 8), torch.tensor([[0, 2], [1, 0]]), normal(2, 2, seed=2)
    unchanged = optimized(*call)
    close(unchanged, theirs(*call))
    for each in (theirs, optimized):
        CHANGES[change](each)
    expected = theirs(*call)
    assert (expected - unchanged).abs().max() > 0.1
    close(optimized(*call), expected)
    close(copy.deepcopy(optimized)(*call), expected)
    torch._dynamo.reset()
    close(torch.compile(optimized, backend="eager")(*call), expected)


@torch.no_grad()
def test_experts_whose_weights_are_parametrized_for_a_while():
    optimized = headlane.torch.optimize(Clamped(1e9).eval())
    call = normal(2, 8), torch.tensor([[0, 2], [1, 0]]), normal(2, 2, seed=2)
    expected, weight = optimized(*call), optimized.down_proj
    parametrize.register_parametrization(optimized, "down_proj", torch.nn.Identity(), unsafe=True)
    close(optimized(*call), expected)
    parametrize.remove_parametrizations(optimized, "down_proj", leave_parametrized=False)
    assert optimized.down_proj is weight
    assert optimized._headlane is not None
    assert optimized(*call).equal(expected)


def test_matrices_that_do_not_fit():
    wide, narrow = headlane.PackedMatrix(normal(8, 6)), headlane.PackedMatrix(normal(6, 8))
    _core.Experts([wide], [wide], [narrow], "silu", "float32")
    for arguments, message in (
        (([], [], []), "Experts: there are no experts"),
        (([wide], [wide, wide], [narrow]), "Experts: gate has 1 matrices, up 2, down 1"),
        (([wide], [narrow], [narrow]), r"Experts: up\[0\] has shape \[6, 8\], wanted: \[8, 6\]"),
        (([wide], [wide], [wide]), r"Experts: down\[0\] has shape \[8, 6\], wanted: \[6, 8\]"),
    ):
        with pytest.raises(ValueError, match=message):
            _core.Experts(*arguments, "silu", "float32")
    with pytest.raises(TypeError, match="Experts: gate has type"):
        _core.Experts([normal(8, 6)], [wide], [narrow], "silu", "float32")
    with pytest.raises(ValueError, match="gate is a PackedMatrix of float32"):
        _core.Experts([wide], [wide], [narrow], "silu", "int8")


@pytest.mark.parametrize("name", ["Mixtral", "GptOss"])
@torch.no_grad()
def test_default_type_of_another_size(name):
    theirs, ours, call = module(name)
    expected = ours(*call)
    torch.set_default_dtype(torch.float64)
    try:
        optimized = headlane.torch.optimize(theirs)
        assert type(optimized) is type(ours)
        assert optimized(*call).equal(expected)
    finally:
        torch.set_default_dtype(torch.float32)
