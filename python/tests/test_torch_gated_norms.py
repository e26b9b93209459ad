"""RMS norms that are gated, as after linear attention, in models that are optimized."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import headlane.torch  # noqa: E402
from headlane import _core  # noqa: E402
from headlane.torch._gated_norms import GatedNorm, gated_norm_of  # noqa: E402
from torch_cases import normal  # noqa: E402

ACTIVATIONS = {"silu": torch.nn.functional.silu, "sigmoid": torch.sigmoid, "tanh": torch.tanh}


class Gated(torch.nn.Module):
    """As that of Qwen3-Next; `first`: the gate comes before the norm, which is one of each group, as in Mamba-2."""

    def __init__(self, width=20, activation="silu", first=False, **sizes):
        super().__init__()
        self.weight = torch.nn.Parameter(normal(width, seed=3))
        self.variance_epsilon = 1e-5
        self.activation = activation
        self.first = first
        self.groups = 1
        for name, value in sizes.items():
            setattr(self, name, value)
            self.groups = value if name == "n_groups" else width // value

    def forward(self, x, gate):
        wide, factor = x.float(), ACTIVATIONS[self.activation](gate.float())
        wide = wide * factor if self.first else wide
        wide = wide.unflatten(-1, (self.groups, -1))
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        wide = wide.flatten(-2)
        normed = self.weight * wide.to(x.dtype)
        return (normed if self.first else normed * factor).to(x.dtype)


def optimized(module):
    return headlane.torch.optimize(torch.nn.Sequential(module).eval())[0]


FORMS = {
    "norm first": ({}, 20),
    "gate first": ({"first": True}, 20),
    "groups": ({"first": True, "n_groups": 5}, 4),
    "groups of a size": ({"first": True, "group_size": 5}, 5),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("activation", ["silu", "sigmoid"])
@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_equal_and_the_same_bits_for_a_row_alone(form, activation, dtype):
    options, width = FORMS[form]
    module = Gated(activation=activation, **options).to(dtype)
    ours = optimized(copy.deepcopy(module))
    assert isinstance(ours, GatedNorm)
    found = gated_norm_of(module)
    assert (found.activation, found.width, found.gate_first) == (activation, width, "first" in options)
    x, gate = normal(3, 7, 20).to(dtype), (4 * normal(3, 7, 20, seed=1)).to(dtype)
    expected, got = module(x, gate), ours(x, gate)
    assert got.dtype is dtype
    rounding = {torch.float32: 1e-6, torch.bfloat16: 0.02, torch.float16: 3e-3}[dtype]
    assert torch.allclose(got.float(), expected.float(), rtol=rounding, atol=rounding)
    rows = torch.stack([ours(x[i, j : j + 1], gate[i, j : j + 1])[0] for i in range(3) for j in range(7)])
    assert torch.equal(rows.view(3, 7, 20), got)


@pytest.mark.parametrize(
    "options", [{"n_groups": 5}, {"activation": "tanh"}, {"activation": "tanh", "first": True, "n_groups": 2}]
)
def test_others_are_left(options):
    assert not isinstance(optimized(Gated(**options)), GatedNorm)


@pytest.mark.parametrize("form", FORMS)
def test_calls_that_are_not_plain_and_changes(form):
    module = Gated(**FORMS[form][0])
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_bits_of_the_operation_on_rows(form, dtype):
    """A module that is called by itself, and the layer that has it as one call."""
    options, width = FORMS[form]
    ours = optimized(Gated(**options).to(dtype))
    x, gate = (normal(3, 7, 20, seed=seed).to(dtype) for seed in (1, 2))
    program = _core.RowProgram(2)
    program.add_output(program.gated_norm(0, 1, 0, ours.variance_epsilon, "silu", width, "first" in options))
    (made,) = program.run([x, gate], [ours.weight.detach().float()], [], [], 1)
    assert torch.equal(made, ours(x, gate))
