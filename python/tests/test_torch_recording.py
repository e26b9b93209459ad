"""headlane.torch: what code is told while it is recorded, and first calls that do not tell much."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import headlane.torch  # noqa: E402
from torch import nn  # noqa: E402
from torch_cases import X, close, normal, seeded  # noqa: E402

MORE = normal(2, 5, 24, seed=2)


class Conditioned(nn.Module):
    def __init__(self, takes):
        super().__init__()
        self.linear = nn.Linear(24, 40)
        self.other = nn.Linear(24, 40, bias=False)
        self.act = nn.GELU()
        self.out = nn.Linear(40, 24, bias=False)
        self.takes = takes

    def forward(self, x, condition=None):
        hidden = self.act(self.linear(x))
        return self.out(hidden + self.other(condition) if self.takes(condition) else hidden)


ASKS = {
    "isinstance": lambda x: isinstance(x, torch.Tensor),
    "is_tensor": torch.is_tensor,
    "hasattr": lambda x: hasattr(x, "ndim"),
}


@pytest.mark.parametrize("asks", ASKS)
@torch.no_grad()
def test_code_that_asks_for_tensors(asks):
    """The recorded value is one, or there is no plan, although the first call would not tell."""
    model = seeded(Conditioned, ASKS[asks])
    optimized = headlane.torch.optimize(model)
    optimized(X, 0 * MORE)
    close(optimized(X, MORE), model(X, MORE))
    close(optimized(X), model(X))


@pytest.mark.parametrize("order", [(MORE, X), (X, MORE)])
@torch.no_grad()
def test_code_that_asks_for_the_same_tensor(order):
    class Cross(Conditioned):
        def forward(self, x, condition):
            return self.out(self.act(self.linear(x) if x is condition else self.other(condition)))

    model = seeded(Cross, None)
    optimized = headlane.torch.optimize(model)
    for condition in order * 2:
        close(optimized(X, condition), model(X, condition))


@torch.no_grad()
def test_a_first_call_of_nan():
    model = seeded(Conditioned, lambda x: type(x) is torch.Tensor)
    optimized = headlane.torch.optimize(model)
    optimized(X * torch.nan, MORE)
    close(optimized(X, MORE), model(X, MORE))


@torch.no_grad()
def test_a_plan_after_a_first_call_of_zeros():
    model = seeded(Conditioned, torch.is_tensor)
    model.linear.bias.zero_()
    optimized = headlane.torch.optimize(model)
    assert (optimized(0 * X) == 0).all()
    assert not optimized._headlane.plans
    close(optimized(X), model(X))
    assert all(optimized._headlane.plans.values())
