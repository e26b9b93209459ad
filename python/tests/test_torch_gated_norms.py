"""RMS norms that are gated, as after linear attention, in models that are optimized."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import headlane.torch  # noqa: E402
from headlane.torch._gated_norms import GatedNorm, gated_norm_of  # noqa: E402
from torch_cases import normal  # noqa: E402

ACTIVATIONS = {"silu": torch.nn.functional.silu, "sigmoid": torch.sigmoid, "tanh": torch.tanh}


class Gated(torch.nn.Module):
    """As that of Qwen3-Next; `first`: the gate comes before the norm, as in Mamba-2."""

    def __init__(self, width=20, activation="silu", first=False):
        super().__init__()
        self.weight = torch.nn.Parameter(normal(width, seed=3))
        self.variance_epsilon = 1e-5
        self.activation = activation
        self.first = first

    def forward(self, x, gate):
        wide, factor = x.float(), ACTIVATIONS[self.activation](gate.float())
        wide = wide * factor if self.first else wide
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        normed = self.weight * wide.to(x.dtype)
        return (normed if self.first else normed * factor).to(x.dtype)


def optimized(module):
    return headlane.torch.optimize(torch.nn.Sequential(module).eval())[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("activation", ["silu", "sigmoid"])
@torch.no_grad()
def test_equal_and_the_same_bits_for_a_row_alone(activation, dtype):
    module = Gated(activation=activation).to(dtype)
    ours = optimized(copy.deepcopy(module))
    assert isinstance(ours, GatedNorm)
    assert gated_norm_of(module).activation == activation
    x, gate = normal(3, 7, 20).to(dtype), (4 * normal(3, 7, 20, seed=1)).to(dtype)
    expected, got = module(x, gate), ours(x, gate)
    assert got.dtype is dtype
    rounding = {torch.float32: 1e-6, torch.bfloat16: 0.02, torch.float16: 3e-3}[dtype]
    assert torch.allclose(got.float(), expected.float(), rtol=rounding, atol=rounding)
    rows = torch.stack([ours(x[i, j : j + 1], gate[i, j : j + 1])[0] for i in range(3) for j in range(7)])
    assert torch.equal(rows.view(3, 7, 20), got)


@pytest.mark.parametrize("options", [{"first": True}, {"activation": "tanh"}])
def test_others_are_left(options):
    assert not isinstance(optimized(Gated(**options)), GatedNorm)


def test_calls_that_are_not_plain_and_changes():
    module = Gated()
    ours = optimized(copy.deepcopy(module))
    x, gate = normal(4, 20), normal(4, 20, seed=1)

    def takes_own_code(x=x, gate=gate):
        return torch.equal(ours(x, gate), module(x, gate))

    with torch.no_grad():
        assert not takes_own_code()
        assert takes_own_code(gate=gate[0])  # which is broadcast
        ours.train()
        assert takes_own_code()
        ours.eval()
    x.requires_grad_()
    ours(x, gate).sum().backward()
    got, x.grad = x.grad, None
    module(x, gate).sum().backward()
    assert torch.equal(got, x.grad)
    with torch.no_grad():
        module.variance_epsilon = ours.variance_epsilon = 0.5
        assert not takes_own_code()
        assert torch.allclose(ours(x, gate), module(x, gate), atol=1e-6)
        module.weight = ours.weight = torch.nn.Parameter(normal(20, seed=9))
        assert torch.allclose(ours(x, gate), module(x, gate), atol=1e-6)
        module.activation = ours.activation = "tanh"
        assert takes_own_code()
    model = headlane.torch.optimize(torch.nn.Sequential(module).eval())
    headlane.torch.restore(model)
    assert type(model[0]) is Gated
