"""headlane.torch: the classes of replaced modules, as code that looks at them or calls them has them."""

import inspect

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import headlane.torch  # noqa: E402
from headlane.torch._modules import Replaced  # noqa: E402
from torch import nn  # noqa: E402
from torch_cases import GatedMlp, RmsNorm, X, close, normal, seeded  # noqa: E402


def stack():
    return seeded(
        nn.Sequential, nn.Linear(24, 40), nn.ReLU(), RmsNorm(40), nn.Linear(40, 24), nn.LayerNorm(24)
    )


@torch.no_grad()
def test_slices_of_a_sequential():
    model = stack()
    optimized = headlane.torch.optimize(model)
    assert isinstance(optimized, Replaced)
    part = optimized[:2]
    assert type(part) is nn.Sequential
    assert part[0] is optimized[0]
    close(part(X), model[:2](X))
    close(optimized[3:](part(X)), model[3:](model[:2](X)))
    headlane.torch.restore(optimized)
    assert part(X).equal(model[:2](X))


@torch.no_grad()
def test_other_modules_of_a_class():
    optimized = headlane.torch.optimize(stack())
    made = type(optimized[0])(24, 8).eval()
    assert type(made) is nn.Linear
    assert made(X).shape == (*X.shape[:-1], 8)
    assert type(optimized[1])()(normal(2)).shape == (2,)
    assert type(type(optimized[2])(width=24)) is RmsNorm
    assert type(optimized[4])((24,), bias=False).bias is None


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(24, 40)
        self.act = nn.GELU()
        self.last = nn.Linear(40, 24)

    def forward(self, x, scale: float = 1.0):
        """Its documentation."""
        return self.last(self.act(self.first(x)) * scale)


@torch.no_grad()
def test_signatures():
    model = nn.Sequential(seeded(Scaled), stack(), seeded(nn.MultiheadAttention, 24, 3))
    optimized = headlane.torch.optimize(model.eval())
    assert isinstance(optimized[0], Replaced)
    for one, other in zip(optimized.modules(), model.modules()):
        assert inspect.signature(one.forward) == inspect.signature(other.forward)
        assert one.forward.__doc__ == other.forward.__doc__


@pytest.mark.parametrize("make", [Scaled, stack])
@torch.no_grad()
def test_symbolic_trace(make):
    model = seeded(make) if make is Scaled else make()
    optimized = headlane.torch.optimize(model)
    close(torch.fx.symbolic_trace(optimized)(X), model(X))


@torch.no_grad()
def test_replicas():
    """As torch.nn.DataParallel makes them: without parameters, which it assigns as attributes."""
    for make in (lambda: nn.Linear(24, 24), nn.ReLU, lambda: nn.LayerNorm(24), GatedMlp):
        model = seeded(lambda make=make: nn.Sequential(nn.Linear(24, 24), make()))
        optimized = headlane.torch.optimize(model)
        replica = optimized[1]._replicate_for_data_parallel()
        assert type(replica) is type(model[1])
        for name, parameter in optimized[1]._parameters.items():
            setattr(replica, name, parameter)
        close(replica(X), model[1](X))
