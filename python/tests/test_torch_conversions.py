"""headlane.torch: models that are converted to another type or device compute as PyTorch's do."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import headlane.torch  # noqa: E402
from headlane.torch._weight import PackedWeight  # noqa: E402
from torch import nn  # noqa: E402
from torch_cases import MODELS, Tied, close, seeded  # noqa: E402


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_another_type(name, dtype):
    make, inputs = MODELS[name]
    model = seeded(make)
    optimized = headlane.torch.optimize(model).to(dtype)
    model.to(dtype)
    assert not any(isinstance(x, PackedWeight) for x in optimized.parameters())
    expected = model.state_dict()
    assert all(x.equal(expected[key]) for key, x in optimized.state_dict().items())
    inputs = [x.to(dtype) if x.is_floating_point() else x for x in inputs]
    for one, other in zip(_tensors(optimized(*inputs)), _tensors(model(*inputs))):
        assert one.dtype is other.dtype
        close(one.float(), other.float(), torch.float32 if dtype is torch.float64 else dtype)
    headlane.torch.restore(optimized)
    assert all(x.equal(expected[key]) for key, x in optimized.state_dict().items())


def _tensors(result):
    return [x for x in (result if isinstance(result, tuple) else (result,)) if x is not None]


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_another_device(name):
    make, inputs = MODELS[name]
    optimized = headlane.torch.optimize(seeded(make)).to("meta")
    assert all(x.is_meta for x in optimized.parameters())
    result = optimized(*(x.to("meta") for x in inputs))
    expected = make().eval().to("meta")(*(x.to("meta") for x in inputs))
    assert [x.shape for x in _tensors(result)] == [x.shape for x in _tensors(expected)]


@torch.no_grad()
def test_a_tied_weight_remains_one():
    optimized = headlane.torch.optimize(seeded(Tied)).double()
    names = [name for name, _ in optimized.named_parameters()]
    assert names == [name for name, _ in Tied().named_parameters()]
    optimized.float()
    assert [name for name, _ in optimized.named_parameters()] == names


@torch.no_grad()
def test_of_a_part():
    """What is left of the model is packed as before."""
    model = seeded(lambda: nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)))
    optimized = headlane.torch.optimize(model)
    optimized[1].double()
    assert isinstance(optimized[0].weight, PackedWeight)
    x = torch.ones(2, 8)
    close(optimized[1](optimized[0](x).double()), copy.deepcopy(model[1]).double()(model[0](x).double()))
