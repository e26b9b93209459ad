"""headlane.torch: norms that get other attributes or parameters after optimize()."""

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
