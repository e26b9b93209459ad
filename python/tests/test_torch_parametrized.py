"""headlane.torch: parameters that pruning and parametrizations make attributes, before optimize() and after."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import headlane.torch  # noqa: E402
from headlane.torch._modules import Replaced  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations, parametrize, prune, weight_norm  # noqa: E402
from torch_cases import X, close, seeded  # noqa: E402


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(24, 24)
        self.act = nn.ReLU()
        self.norm = nn.LayerNorm(24)
        self.last = nn.Linear(24, 24)

    def forward(self, x):
        return self.last(self.norm(self.act(self.first(x)) + x))


class Negative(nn.Module):
    def forward(self, x):
        return -x


CHANGES = {
    "pruned": lambda module, name: prune.random_unstructured(module, name, 0.5),
    "parametrized": lambda module, name: parametrize.register_parametrization(module, name, Negative()),
    "normalized": lambda module, name: weight_norm(module, name, dim=None),
}


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize("change", ["pruned", "parametrized", "normalized"])
@pytest.mark.parametrize("place", ["first.bias", "first.weight", "norm.bias", "norm.weight"])
@torch.no_grad()
def test_before(change, place):
    model = seeded(Model)
    child, name = place.split(".")
    CHANGES[change](model.get_submodule(child), name)
    optimized = headlane.torch.optimize(model)
    copied = [] if change == "pruned" else [copy.deepcopy(optimized)]  # PyTorch copies no pruned module
    for each in (optimized, optimized, *copied):
        close(each(X), model(X))
    headlane.torch.restore(optimized)
    assert optimized(X).equal(model(X))


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize("change", ["pruned", "parametrized", "normalized"])
@pytest.mark.parametrize("place", ["first.bias", "norm.bias", "norm.weight"])
@pytest.mark.parametrize("is_called", [False, True])
@torch.no_grad()
def test_after(change, place, is_called):
    model = seeded(Model)
    optimized = headlane.torch.optimize(model)
    if is_called:
        optimized(X)
    child, name = place.split(".")
    for each in (model, optimized):
        torch.manual_seed(0)
        CHANGES[change](each.get_submodule(child), name)
    for each in (optimized, optimized, copy.deepcopy(optimized)):
        close(each(X), model(X))


@pytest.mark.parametrize("name", ["in_proj_weight", "in_proj_bias"])
@torch.no_grad()
def test_attention(name):
    model = seeded(nn.MultiheadAttention, 24, 3, batch_first=True)
    prune.random_unstructured(model, name, 0.5)
    optimized = headlane.torch.optimize(model)
    close(optimized(X, X, X)[0], model(X, X, X)[0])


@torch.no_grad()
def test_layers_of_a_transformer():
    model = seeded(nn.TransformerEncoderLayer, 24, 3, 40, batch_first=True)
    optimized = headlane.torch.optimize(model)
    for each in (model, optimized):
        parametrize.register_parametrization(each.linear1, "bias", Negative())
    close(optimized(X), model(X))


@pytest.mark.parametrize("place", ["first.weight", "first.bias", "norm.weight", "act"])
@pytest.mark.parametrize("is_called", [False, True])
@torch.no_grad()
def test_restored_after(place, is_called):
    model = seeded(Model)
    optimized = headlane.torch.optimize(model)
    child, _, name = place.partition(".")
    for each in (model, optimized):
        module = each.get_submodule(child)
        if name:
            parametrize.register_parametrization(module, name, Negative())
        else:
            module.__class__ = type("Derived", (type(module),), {})
        if is_called:
            each(X)
    assert isinstance(optimized.get_submodule(child), Replaced)
    headlane.torch.restore(optimized)
    assert not any(isinstance(module, Replaced) for module in optimized.modules())
    assert optimized(X).equal(model(X))
    assert optimized.state_dict().keys() == model.state_dict().keys()
    if name:
        for each in (model, optimized):
            parametrize.remove_parametrizations(each.get_submodule(child), name)
        assert [type(x) for x in optimized.modules()] == [type(x) for x in model.modules()]
        assert optimized(X).equal(model(X))


@torch.no_grad()
def test_spectral_norm_after():
    model = seeded(Model)
    optimized = headlane.torch.optimize(model)
    parametrizations.spectral_norm(optimized.first)
    expected = optimized(X)
    headlane.torch.restore(optimized)
    close(optimized(X), expected)
