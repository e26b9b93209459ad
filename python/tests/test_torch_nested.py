"""headlane.torch: the code of modules in modules, as a plan or not."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import headlane.torch  # noqa: E402
from torch import nn  # noqa: E402
from torch_cases import normal, seeded  # noqa: E402


class Inner(nn.Module):
    def __init__(self, code):
        super().__init__()
        self.one, self.two, self.norm = nn.Linear(24, 24), nn.Linear(24, 24), nn.LayerNorm(24)
        self.code = code

    def forward(self, x, y=None):
        return self.code(self, x, y)


class Outer(nn.Module):
    def __init__(self, code):
        super().__init__()
        self.inner, self.last, self.calls = Inner(code), nn.Linear(24, 24), 0

    def forward(self, x, y=None):
        return self.inner(self.last(x), y) + x


def counted(m, x, y):
    m.calls = getattr(m, "calls", 0) + 1
    return m.two(torch.relu(m.one(x))) * m.calls


CODE = {
    "plain": lambda m, x, y: m.two(torch.relu(m.one(x))) + x,
    "scaled by a large number": lambda m, x, y: torch.relu(m.one(x)) * 1e300,
    "scaled": lambda m, x, y: m.two(torch.relu(m.one(x)) * 0.5) * 2,
    "of its class": lambda m, x, y: m.norm(x) if isinstance(m.norm, nn.Module) else m.norm(m.one(x) + x),
    "of its shape": lambda m, x, y: torch.relu(m.one(x)) if x.shape[0] == 2 else m.two(x),
    "of its width": lambda m, x, y: torch.relu(m.one(x)) / x.shape[-1] ** 0.5,
    "of its values": lambda m, x, y: torch.relu(m.one(x)) if x.sum() > 0 else m.two(x),
    "of an option": lambda m, x, y: torch.relu(m.one(x)) if y else torch.relu(m.two(x)),
    "of another tensor": lambda m, x, y: torch.relu(m.one(x)) if y is None else torch.relu(m.one(x)) + y,
    "counted": counted,
    "in place": lambda m, x, y: torch.relu(m.one(x)).mul_(2),
    "added in place": lambda m, x, y: (x.__iadd__(1), torch.relu(m.one(x)))[1],
    "heads": lambda m, x, y: (
        torch.relu(m.one(x))
        .view(*x.shape[:-1], 3, 8)
        .transpose(1, 2)
        .transpose(2, 1)
        .reshape(*x.shape[:-1], -1)
    ),
    "the same": lambda m, x, y: torch.relu(m.one(x)).view(x.shape[0], -1, 24),
}


@pytest.mark.parametrize("name", CODE)
@torch.no_grad()
def test_code_of_several_modules(name):
    """As a plan or not: what the code says, for each kind of arguments."""
    model = seeded(Outer, CODE[name])
    optimized = headlane.torch.optimize(model)
    x = normal(2, 5, 24)
    options = [(), (True,), (False,), (1.0,), (1,)]
    if name in ("heads", "counted"):
        options = [()]
    if name == "of another tensor":
        options = [(), (normal(24, seed=5),), (normal(1, 1, 24, seed=4),)]
    for inputs in (x, -x, x[:1], x[:, :3], x.expand(3, 2, 5, 24)):
        if name in ("heads", "the same") and inputs.dim() != 3:
            continue
        for more in options:
            for _ in range(2):
                one, other = (each(inputs.clone(), *more) for each in (optimized, model))
                torch.testing.assert_close(one, other, rtol=0, atol=2e-5, equal_nan=True)
