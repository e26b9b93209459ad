"""headlane.torch: norms that get other attributes or parameters after optimize()."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import headlane.torch  # noqa: E402
from headlane.torch import _norms  # noqa: E402
from torch import nn  # noqa: E402
from torch_cases import RmsNorm, X, close, seeded  # noqa: E402


class Scaled(RmsNorm):
    def __init__(self, width):
        super().__init__(width)
        self.gain, self.enabled = 1.0, True

    def forward(self, x):
        return super().forward(x) * self.gain if self.enabled else x


CHANGES = {
    "gain": lambda norm: setattr(norm, "gain", 0.5),
    "enabled": lambda norm: setattr(norm, "enabled", False),
    "deleted": lambda norm: delattr(norm, "variance_epsilon") or setattr(norm, "variance_epsilon", 0.1),
    "weight": lambda norm: setattr(norm, "weight", nn.Parameter(torch.arange(24.0))),
}


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("name", CHANGES)
@torch.no_grad()
def test_attributes_set_later(name, fused):
    model = nn.Sequential(seeded(Scaled, 24), nn.Linear(24, 24) if fused else nn.Identity(), nn.ReLU()).eval()
    optimized = headlane.torch.optimize(model)
    assert isinstance(optimized[0], _norms.Norm)
    for _ in range(2):
        close(optimized(X), model(X))
    for each in (model, optimized):
        CHANGES[name](each[0])
    for _ in range(2):
        close(optimized(X), model(X))


class OfSettings(nn.Module):
    """A norm and an activation whose code reads an object."""

    def __init__(self, norm, settings):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(24)) if norm else None
        self.settings = settings

    def forward(self, x):
        if self.weight is None:
            return torch.relu(x) if self.settings.eps else torch.tanh(x)
        return nn.functional.rms_norm(x, (24,), self.weight, self.settings.eps)


class OfGlobal(nn.Module):
    def forward(self, x):
        return torch.relu(x) if SETTINGS.eps else torch.tanh(x)


SETTINGS = SimpleNamespace(eps=1e-5)


@torch.no_grad()
def test_objects_that_change_later(monkeypatch):
    monkeypatch.setattr(SETTINGS, "eps", 1e-5)
    parts = OfSettings(True, SETTINGS), nn.Linear(24, 24), OfSettings(False, SETTINGS), OfGlobal()
    model = nn.Sequential(*parts).eval()
    optimized = headlane.torch.optimize(model)
    for eps in (1e-5, 0):
        SETTINGS.eps = eps
        for each in (model, optimized):
            each[0].settings.eps = each[2].settings.eps = eps
        close(optimized(X / 1e3), model(X / 1e3))


@pytest.mark.parametrize("fused", [False, True])
@torch.no_grad()
def test_parameters_of_a_layer_norm_that_come_and_go(fused):
    def layers(**options):
        return nn.Sequential(
            seeded(nn.LayerNorm, 24, **options), nn.Linear(24, 24) if fused else nn.Identity(), nn.ReLU()
        ).eval()

    for options in ({}, {"bias": False}, {"elementwise_affine": False}):
        for name in ("weight", "bias"):
            for value in (nn.Parameter(torch.arange(24.0)), None):
                model = layers(**options)
                optimized = headlane.torch.optimize(model)
                close(optimized(X), model(X))
                for each in (model, optimized):
                    setattr(each[0], name, value)
                for _ in range(2):
                    close(optimized(X), model(X))
