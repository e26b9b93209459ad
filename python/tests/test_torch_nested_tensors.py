"""headlane.torch: nested tensors, which PyTorch's own code computes."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import headlane.torch  # noqa: E402
from torch import nn  # noqa: E402
from torch_cases import close, normal, seeded  # noqa: E402


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(24, 4, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


def _layer(**options):
    return nn.TransformerEncoderLayer(24, 4, 40, batch_first=True, **options)


MODELS = {
    "attention": Attention,
    "linear": lambda: nn.Linear(24, 24),
    "norm": lambda: nn.LayerNorm(24),
    "layer": _layer,
    "gelu": lambda: _layer(activation="gelu"),
    "module": lambda: _layer(activation=nn.GELU()),
    "encoder": lambda: nn.TransformerEncoder(_layer(), 2),
    "encoder with a norm": lambda: nn.TransformerEncoder(_layer(norm_first=True), 2, nn.LayerNorm(24)),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_nested_tensors(name):
    """Without and with weights of fewer bits, which are computed by their kept originals."""
    model = seeded(MODELS[name])
    x = torch.nested.nested_tensor([normal(3, 24), normal(5, 24, seed=1)])
    expected = model(x).to_padded_tensor(0)
    for weights in (None, "int8"):
        optimized = headlane.torch.optimize(model, weights=weights)
        close(optimized(x).to_padded_tensor(0), expected)


@torch.no_grad()
def test_what_pytorch_refuses():
    """With PyTorch's reason."""
    optimized = headlane.torch.optimize(seeded(nn.MultiheadAttention, 24, 3, batch_first=True))
    x = torch.nested.nested_tensor([normal(3, 24), normal(5, 24, seed=1)])
    with pytest.raises(AssertionError, match="num_heads is not even"):
        optimized(x, x, x)
