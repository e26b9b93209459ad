"""headlane.torch: which modules are found to be activations, and that they compute what their code says."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import headlane.torch  # noqa: E402
from torch import nn  # noqa: E402
from torch_cases import X, close, seeded  # noqa: E402


class Code(nn.Module):
    """A function of two linear layers and an activation."""

    def __init__(self, activation, code):
        super().__init__()
        self.first = nn.Linear(24, 24)
        self.act = activation
        self.last = nn.Linear(24, 24)
        self.code = code

    def forward(self, x):
        return self.code(self, x)


def plain(m, x):
    return m.last(m.act(m.first(x)))


def ignored(m, x):
    h = m.first(x)
    m.act(h)
    return m.last(h)


def of_input(m, x):
    return x + m.last(m.act(x))


class TimesTwo(nn.Module):
    def forward(self, x):
        return x.mul_(2)


@pytest.mark.parametrize("code", [plain, ignored, of_input])
@pytest.mark.parametrize(
    "make", [lambda: nn.ReLU(True), lambda: nn.SiLU(True), lambda: nn.LeakyReLU(0.1, True), TimesTwo]
)
@torch.no_grad()
def test_in_place(make, code):
    """What it is given is changed once in each call, the first too."""
    model = seeded(Code, make(), code)
    optimized = headlane.torch.optimize(model)
    for _ in range(2):
        x, other = X.clone(), X.clone()
        close(optimized(x), model(other))
        assert x.equal(other)
