"""headlane.torch: modules that give back what they are given, or seem to, inside of modules that are fused."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import headlane.torch  # noqa: E402
from headlane.torch import _modules  # noqa: E402
from torch import nn  # noqa: E402
from torch_cases import X, close, seeded  # noqa: E402


class Applied(nn.Module):
    def __init__(self, code):
        super().__init__()
        self.code = code
        self.factor = 1.0

    def forward(self, x):
        return self.code(self, x)


def between(child):
    return nn.Sequential(nn.Linear(24, 40), nn.ReLU(), child, nn.Linear(40, 24))


# Of some arguments they return these.
CODE = {
    "clamp": lambda m, x: x.clamp(-50, 50),
    "no NaN": lambda m, x: torch.nan_to_num(x),
    "scale": lambda m, x: x * m.factor,
    "flip": lambda m, x: x.flip(1),
    "mean": lambda m, x: x.mean(1, keepdim=True),
    "transpose": lambda m, x: x.transpose(0, 1),
}


@pytest.mark.parametrize("name", CODE)
@torch.no_grad()
def test_modules_that_are_sometimes_identities(name):
    model = seeded(between, Applied(CODE[name]))
    optimized = headlane.torch.optimize(model)
    for x in (X[:1, :1], X, X * 1e3, X.where(X < 1, torch.nan)):
        torch.testing.assert_close(optimized(x), model(x), rtol=1e-4, atol=2e-4, equal_nan=True)
    model[2].factor = optimized[2].factor = 0.1
    close(optimized(X), model(X))


class Tap(nn.Module):
    value = None

    def forward(self, x):
        self.value = x
        return x


@torch.no_grad()
def test_a_module_that_keeps_what_it_sees():
    model = seeded(between, Tap())
    optimized = headlane.torch.optimize(model)
    for scale in (1, 2, 3):
        close(optimized(X * scale), model(X * scale))
        close(optimized[2].value, model[2].value)


class DropPath(nn.Module):
    """As models of transformers and timm have one."""

    def __init__(self):
        super().__init__()
        self.probability = 0.5

    def forward(self, x):
        if self.probability == 0 or not self.training:
            return x
        return x * (torch.rand(len(x), 1, 1) > self.probability)


@pytest.mark.parametrize("make", [nn.Identity, nn.Dropout, nn.AlphaDropout, DropPath])
@torch.no_grad()
def test_dropouts_are_no_operations(make):
    model = seeded(lambda: nn.Sequential(nn.Linear(24, 40), make(), nn.ReLU(), nn.Linear(40, 24)))
    optimized = headlane.torch.optimize(model)
    assert isinstance(optimized, _modules.Replaced)
    for _ in range(2):
        close(optimized(X), model(X))
    (plan,) = optimized._headlane.plans.values()
    assert len(plan.steps) == 1
    if make is DropPath:
        optimized[1].train()
        assert not optimized(X).equal(model(X))
