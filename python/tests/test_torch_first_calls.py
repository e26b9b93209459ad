"""headlane.torch: a plan is kept only if its first result is that of the code, in every type."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import headlane.torch  # noqa: E402
from torch import nn  # noqa: E402
from torch_cases import X, seeded  # noqa: E402

TYPES = [torch.float32, torch.bfloat16, torch.float16]


class Net(nn.Module):
    """Its code is another for what is no tensor."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(24, 40), nn.Linear(40, 24)

    def forward(self, x):
        try:
            hidden = nn.functional.softplus(self.up(x))
        except Exception:
            hidden = nn.functional.relu(self.up(x))
        return self.down(hidden)


@pytest.mark.parametrize("dtype", TYPES)
@torch.no_grad()
def test_code_that_catches_what_a_recording_raises(dtype):
    model = seeded(Net).to(dtype)
    optimized, x = headlane.torch.optimize(model), X.to(dtype)
    for _ in range(2):
        assert (optimized(x) - model(x)).abs().max() <= 16 * torch.finfo(dtype).eps
    assert list(optimized._headlane.plans.values()) == [None]
