"""headlane.torch: which modules are fused, and that they compute what their code says."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import headlane.torch  # noqa: E402
from headlane.torch import _modules  # noqa: E402
from torch import nn  # noqa: E402
from torch_cases import GatedMlp, Output, X, close, normal, seeded  # noqa: E402


@torch.no_grad()
def test_a_module_whose_parts_are_replaced():
    """A fused module that gets another child, or another attribute, computes what its code says."""
    model = seeded(GatedMlp)
    optimized = headlane.torch.optimize(model)
    assert isinstance(optimized, _modules.Replaced)
    for each in (model, optimized):
        each.act = nn.ReLU()
    close(optimized(X), model(X))
    model = seeded(GatedMlp)
    optimized = headlane.torch.optimize(model)
    seen = []
    optimized.up.register_forward_hook(lambda module, inputs, output: seen.append(output))
    close(optimized(X), model(X))
    assert len(seen) == 1
    close(seen[0], model.up(X))
    optimized.drop.train()  # dropout at inference, for uncertainties
    assert (optimized(X) == 0).any()


@torch.no_grad()
def test_a_fused_module_reads_an_attribute():
    class Chosen(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(24, 24)
            self.act = nn.ReLU()
            self.active = True

        def forward(self, x):
            return self.act(self.linear(x)) if self.active else self.linear(x)

    model = seeded(Chosen)
    optimized = headlane.torch.optimize(model)
    close(optimized(X), model(X))
    model.active = optimized.active = False
    close(optimized(X), model(X))


class TimesAxes(nn.Module):
    def forward(self, x):
        return x * x.dim()


class NotPlain(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.linear = nn.Linear(24, 24)
        self.other = nn.Linear(24, 24)
        self.act = nn.ReLU()
        self.norm = nn.LayerNorm(24)
        self.times_axes = TimesAxes()
        self.scale = 2.0
        self.code = forward

    def forward(self, x):
        return self.code(self, x)


def flat(m, x):
    """A value, and its rows without batches."""
    h = m.norm(x)
    return h, h.reshape(-1, h.size(-1))


CODE = {
    "twice": lambda m, x: m.act(m.linear(x)) + m.linear(x),
    "used twice": lambda m, x: (lambda y: m.act(y) * y)(m.linear(x)),
    "scaled": lambda m, x: m.act(m.linear(x)) * m.scale,
    "of its shape": lambda m, x: m.act(m.linear(x)) if x.shape[0] == 2 else x,
    "of its values": lambda m, x: m.act(m.linear(x)) if x.sum() > 0 else x,
    "functions": lambda m, x: torch.relu(m.linear(x)) + nn.functional.silu(m.other(x)),
    "gate on the right": lambda m, x: m.other(x) * nn.functional.gelu(m.linear(x), approximate="tanh"),
    "gate of another input": lambda m, x: m.act(m.linear(x)) * m.other(m.act(x)),
    "sum of two": lambda m, x: m.linear(x) + m.other(x),
    "sum with itself": lambda m, x: (lambda y: y + y)(m.act(m.linear(x))),
    "norm of a sum": lambda m, x: m.norm(x + m.act(m.linear(x))),
    "residual later": lambda m, x: m.linear(x) + m.act(m.other(m.norm(x))),
    "dropout": lambda m, x: nn.functional.dropout(m.act(m.linear(x)), 0.5, training=m.training),
    "an input": lambda m, x: (m.act(m.linear(x)), x)[1],
    "in place": lambda m, x: m.act(m.linear(x)).add_(1),
    "weights": lambda m, x: nn.functional.linear(m.act(m.linear(x)), m.other.weight),
    "flat": lambda m, x: (lambda h, y: (m.act(m.linear(y)) + y).view(h.shape))(*flat(m, x)),
    "flat result": lambda m, x: m.act(m.linear(flat(m, x)[1])),
    "a module of axes": lambda m, x: m.act(m.linear(m.times_axes(m.norm(x)))),
    "a module of flat axes": lambda m, x: (lambda h, y: m.act(m.linear(m.times_axes(y))).view(h.shape) + h)(
        *flat(m, x)
    ),
}


@pytest.mark.parametrize("name", CODE)
@torch.no_grad()
def test_code_of_modules(name):
    """Fused or not: what the code says."""
    model = seeded(NotPlain, CODE[name])
    optimized = headlane.torch.optimize(model)
    close(optimized(X), model(X))
    close(optimized(X[:1, :1]), model(X[:1, :1]))
    close(optimized(-X), model(-X))


def test_fused_modules():
    """What is found to be plain."""
    fused = [
        name for name, code in CODE.items() if _is_fused(headlane.torch.optimize(seeded(NotPlain, code)))
    ]
    expected = [
        "twice",
        "used twice",
        "scaled",
        "functions",
        "gate on the right",
        "gate of another input",
        "sum of two",
        "sum with itself",
    ]
    assert fused == [
        *expected,
        "norm of a sum",
        "residual later",
        "dropout",
        "flat",
        "a module of axes",
    ]


def _is_fused(model):
    return isinstance(model, _modules.Replaced)


@torch.no_grad()
def test_residuals_that_broadcast():
    model = seeded(Output)
    optimized = headlane.torch.optimize(model)
    for shape in ((24,), (1, 5, 24), (2, 1, 24), (3, 2, 5, 24)):
        residual = normal(*shape, seed=3)
        close(optimized(X, residual), model(X, residual))


class Gated(nn.Module):
    """As the shared expert of a mixture: a gate of one number for each row."""

    def __init__(self):
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(24, 1), nn.Linear(24, 40), nn.Linear(40, 24)

    def forward(self, x):
        return torch.sigmoid(self.gate(x)) * self.down(torch.relu(self.up(x)))


@torch.no_grad()
def test_factors_that_broadcast():
    model = seeded(Gated)
    optimized = headlane.torch.optimize(model)
    assert _is_fused(optimized)
    for _ in range(2):
        close(optimized(X), model(X))
    (plan,) = optimized._headlane.plans.values()
    assert plan.run([X]) is not NotImplemented
