"""headlane.torch: activations that the code of a module calls beside its linear layers."""

import io

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import headlane.torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from headlane.torch._calls import CallsFunctions  # noqa: E402
from torch import nn  # noqa: E402
from torch_cases import DTYPES, close, normal, seeded  # noqa: E402


class Gated(nn.Module):
    """The sums along a row are what keeps it from being fused."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(24, 33)
        self.gate = nn.Linear(24, 1)

    def forward(self, x):
        y = F.silu(self.up(x)) + F.gelu(self.up(x), approximate="tanh")
        return y.cumsum(-1) * F.sigmoid(self.gate(x))


class Convolved(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv1d(2, 2, 3)

    def forward(self, x):
        return F.silu(self.convolution(x))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@torch.no_grad()
def test_a_row_alone_and_among_others(dtype):
    model, x = seeded(Gated).to(dtype), normal(29, 24, dtype=dtype)
    optimized = headlane.torch.optimize(model)
    assert isinstance(optimized, CallsFunctions)
    expected = optimized(x)
    close(expected, model(x), dtype)
    for i in range(29):
        assert optimized(x[i : i + 1])[0].equal(expected[i])
        assert optimized(x[i]).equal(expected[i])
    assert optimized(x.repeat(100, 1)).equal(expected.repeat(100, 1))
    stream = io.StringIO()
    headlane.torch.report(optimized, stream)
    assert "activations in its code" in stream.getvalue()
    headlane.torch.restore(optimized)
    assert type(optimized) is Gated
    assert optimized(x).equal(model(x))


def test_gradients_training_and_autocast():
    model, x = seeded(Gated), normal(29, 24)
    optimized = headlane.torch.optimize(model)
    gradients = []
    for each in (model, optimized, optimized.train()):
        given = x.clone().requires_grad_()
        each(given).square().sum().backward()
        gradients.append(given.grad)
    close(gradients[1], gradients[0])
    close(gradients[2], gradients[0])
    optimized.eval()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert optimized(x).equal(model(x))


OTHERS = {
    "layout": lambda: torch.eye(3).to_sparse(),
    "device": lambda: torch.ones(3, device="meta"),
    "axes": lambda: torch.ones((1,) * 9),
    "negative": lambda: torch.ones(3, dtype=torch.complex64).conj().imag,
    "type": lambda: torch.arange(3),
    "none": lambda: torch.tensor(0.5),
    "empty": lambda: torch.ones(0, 3),
    "turned": lambda: normal(3, 4, 5).transpose(1, 2),
    "every_second": lambda: normal(3, 8)[:, ::2],
    "expanded": lambda: normal(3, 1).expand(3, 4),
}


@pytest.mark.parametrize("name", OTHERS)
@torch.no_grad()
def test_any_tensor_of_code(name):
    """With the result and the strides that PyTorch has, whatever tensor an activation is called with."""

    class Code(Gated):
        def forward(self, x):
            return torch.tanh(x)

    model, x = seeded(Code), OTHERS[name]()
    optimized = headlane.torch.optimize(model)
    assert isinstance(optimized, CallsFunctions)
    result, expected = optimized(x), model(x)
    assert (result.shape, result.dtype, result.layout) == (expected.shape, expected.dtype, expected.layout)
    if x.layout is torch.strided:
        assert result.stride() == expected.stride()
    if not x.is_meta:
        torch.testing.assert_close(result, expected)


@torch.no_grad()
def test_compiled():
    optimized, x = headlane.torch.optimize(seeded(Gated)), normal(29, 24)
    close(torch.compile(optimized, fullgraph=True)(x), optimized(x))


@torch.no_grad()
def test_activations_of_convolutions_are_theirs():
    optimized = headlane.torch.optimize(seeded(Convolved))
    assert type(optimized) is Convolved
