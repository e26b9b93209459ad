"""headlane.torch: what code reads outside of its module may change after a plan was made."""

import contextvars
import os
from types import ModuleType, SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import headlane.torch  # noqa: E402
from torch import nn  # noqa: E402
from torch_cases import X, close, seeded  # noqa: E402

settings = ModuleType("settings")


class Settings:
    factor = 1.0


class Derived(Settings):
    pass


OBJECT, VARIABLE, PAIR = SimpleNamespace(factor=1.0), contextvars.ContextVar("factor", default=1.0), (1.0,)
settings.factor, settings.inside = 1.0, SimpleNamespace(factor=1.0)


class Block(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.up, self.act, self.down, self.factor = nn.Linear(24, 24), nn.GELU(), nn.Linear(24, 24), factor

    def forward(self, x):
        return x + self.down(self.act(self.up(x))) * self.factor()


# What code reads, and how it is changed.
READS = {
    "module": (lambda: settings.factor, lambda patch: patch.setattr(settings, "factor", 0.1)),
    "object of a module": (
        lambda: settings.inside.factor,
        lambda patch: patch.setattr(settings.inside, "factor", 0.1),
    ),
    "class": (lambda: Settings.factor, lambda patch: patch.setattr(Settings, "factor", 0.1)),
    "inherited": (lambda: Derived.factor, lambda patch: patch.setattr(Settings, "factor", 0.1)),
    "object": (lambda: OBJECT.factor, lambda patch: patch.setattr(OBJECT, "factor", 0.1)),
    "variable": (lambda: VARIABLE.get(), lambda patch: VARIABLE.set(0.1)),
    "tuple": (lambda: PAIR[0], lambda patch: patch.setitem(globals(), "PAIR", (0.1,))),
    "function": (lambda: (lambda: OBJECT.factor)(), lambda patch: patch.setattr(OBJECT, "factor", 0.1)),
    "environment": (
        lambda: float(os.environ.get("FACTOR", "1")),
        lambda patch: patch.setenv("FACTOR", "0.1"),
    ),
    "gradients": (
        lambda: 0.1 if torch.is_grad_enabled() else 1.0,
        lambda patch: torch.set_grad_enabled(True),
    ),
}


def closure():
    kept = SimpleNamespace(factor=1.0)
    return lambda: kept.factor, lambda patch: patch.setattr(kept, "factor", 0.1)


READS["closure"] = closure()


@pytest.mark.parametrize("name", READS)
def test_changes(name, monkeypatch):
    factor, change = READS[name]
    model = seeded(Block, factor).requires_grad_(False)
    optimized = headlane.torch.optimize(model)
    with torch.no_grad():
        for _ in range(2):
            close(optimized(X), model(X))
        change(monkeypatch)
        close(optimized(X), model(X))


@torch.no_grad()
def test_constants_leave_a_plan():
    for name in ("module", "class", "inherited", "tuple", "gradients"):
        optimized = headlane.torch.optimize(seeded(Block, READS[name][0]))
        optimized(X)
        assert all(optimized._headlane.plans.values()), name
