"""headlane.torch: weights that take the place of packed ones, also in a parameter that stays the same object."""

import copy
import pickle

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import headlane.torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.utils import parametrize  # noqa: E402
from torch_cases import Tied, X, close, seeded  # noqa: E402


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(24, 3, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x)[0]


IDS = torch.tensor([[1, 4, 2]])
# A model, the name of a weight, and an input.
WEIGHTS = {
    "linear": (lambda: nn.Linear(24, 24), "weight", X),
    "fused": (lambda: nn.Sequential(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 24)), "0.weight", X),
    "attention": (Attention, "attention.in_proj_weight", X),
    "output of attention": (Attention, "attention.out_proj.weight", X),
    "tied": (Tied, "embedding.weight", IDS),
    "encoder layer": (
        lambda: nn.TransformerEncoderLayer(24, 3, 40, batch_first=True),
        "linear1.weight",
        X,
    ),
}


def _new(weight):
    return nn.Parameter(torch.linspace(-1, 1, weight.numel()).view(weight.shape), requires_grad=False)


@pytest.mark.parametrize("name", WEIGHTS)
@torch.no_grad()
def test_swap_tensors(name):
    make, weight, x = WEIGHTS[name]
    model = seeded(make)
    optimized = headlane.torch.optimize(model)
    for _ in range(2):
        optimized(x)
    for each in (model, optimized):
        parameter = each.get_parameter(weight)
        torch.utils.swap_tensors(parameter, _new(parameter))
    for each in (optimized, copy.deepcopy(optimized), pickle.loads(pickle.dumps(optimized))):
        for _ in range(2):
            close(each(x), model(x))
    headlane.torch.restore(optimized)
    assert optimized.get_parameter(weight).equal(model.get_parameter(weight))


@torch.no_grad()
def test_swapped_with_another_packed_weight():
    model = seeded(lambda: nn.Sequential(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 24)))
    optimized = headlane.torch.optimize(model)
    optimized(X)
    for each in (model, optimized):
        torch.utils.swap_tensors(each[0].weight, each[2].weight)
    close(optimized(X), model(X))


@torch.no_grad()
def test_loaded_by_swaps(monkeypatch):
    new, model = (seeded(nn.Sequential, nn.Linear(24, 24), nn.Linear(24, 24)) for _ in range(2))
    new[1].weight.zero_()
    optimized = headlane.torch.optimize(model)
    monkeypatch.setattr(torch.__future__, "_swap_module_params_on_conversion", True)
    with pytest.raises(RuntimeError, match=r"is packed and cannot be changed; headlane.torch.restore"):
        optimized.load_state_dict(new.state_dict())
    optimized.load_state_dict(new.state_dict(), assign=True)
    assert optimized(X).equal(new(X))


@torch.no_grad()
def test_parametrization_that_stays():
    """remove_parametrizations() puts the values into the parameter that there was."""
    optimized = headlane.torch.optimize(seeded(nn.Linear, 24, 24))
    parametrize.register_parametrization(optimized, "weight", nn.Tanh())
    expected = optimized(X)
    parametrize.remove_parametrizations(optimized, "weight")
    assert optimized(X).equal(expected)


@pytest.mark.parametrize("name", WEIGHTS)
@torch.no_grad()
def test_replaced_and_compiled(name):
    make, weight, x = WEIGHTS[name]
    model = seeded(make)
    optimized = headlane.torch.optimize(model)
    at, _, last = weight.rpartition(".")
    for each in (model, optimized):
        setattr(each.get_submodule(at), last, _new(each.get_parameter(weight)))
    torch._dynamo.reset()
    close(torch.compile(optimized, backend="eager")(x), model(x))
