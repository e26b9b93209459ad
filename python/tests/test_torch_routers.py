"""headlane.torch: code that multiplies by a weight of its own, such as the routers of mixtures of experts."""

import copy
import pickle

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
import headlane.torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from decoder_cases import CACHE  # noqa: E402
from expert_cases import made  # noqa: E402
from headlane.torch._calls import CallsLinear  # noqa: E402
from torch import nn  # noqa: E402
from torch_cases import DTYPES, close, normal, seeded  # noqa: E402

# Those whose router is code.
ROUTED = ["Mixtral", "Qwen2Moe", "Qwen3Moe", "Olmoe", "DeepseekV3", "Glm4Moe", "GptOss"]
IDS = torch.arange(3, 45).view(3, 14)


class Router(nn.Module):
    """Sigmoids of products in float32."""

    def __init__(self, width=33, experts=7, bias=False):
        super().__init__()
        self.weight = nn.Parameter(normal(experts, width))
        self.bias = nn.Parameter(normal(experts, seed=1)) if bias else None

    def forward(self, x):
        logits = F.linear(x.float(), self.weight.float(), None if self.bias is None else self.bias.float())
        return logits.sigmoid()


class Scaled(nn.Module):
    """Code whose weight is another one for each call."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(normal(4, 8))

    def forward(self, x):
        return F.linear(x, 2 * self.weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ROUTED)
@torch.no_grad()
def test_a_sequence_alone_and_among_others_and_token_by_token(name, dtype):
    optimized = headlane.torch.optimize(made(name, dtype))
    assert any(isinstance(x, CallsLinear) for x in optimized.modules())
    expected = optimized(IDS).logits
    for row, alone in zip(expected, IDS):
        assert optimized(alone[None]).logits[0].equal(row)
        cache = transformers.DynamicCache(config=optimized.config)
        for i, token in enumerate(alone):
            result = optimized(token.view(1, 1), **{CACHE: cache}, use_cache=True)
            assert result.logits[0, 0].equal(row[i])


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@torch.no_grad()
def test_router(dtype, bias):
    model = seeded(Router, bias=bias).to(dtype)
    for weights in (None, "int8"):  # which expert a token takes is not decided by rounded numbers
        optimized = headlane.torch.optimize(model, weights)
        x = normal(29, 33, dtype=dtype)
        result = optimized(x)
        close(result, model(x))
        for each in (x[:1], x[3:5], x[0], x.view(1, 29, 1, 33), x.T.contiguous().T):
            close(optimized(each), model(each))
        assert optimized(x[:0]).shape == (0, 7)
        assert all(optimized(x[i : i + 1])[0].equal(result[i]) for i in range(29))
        assert all(optimized(x[:i]).equal(result[:i]) for i in range(30))
        for other in (copy.deepcopy(optimized), pickle.loads(pickle.dumps(optimized))):
            assert other(x).equal(result)
        assert optimized.state_dict()["weight"].equal(model.weight)
        headlane.torch.restore(optimized)
        assert type(optimized) is Router
        assert optimized(x).equal(model(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_router_as_it_was(dtype):
    """Gradients, autocast and training: the original code and weight."""
    model, x = seeded(Router).to(dtype), normal(5, 33, dtype=dtype)
    optimized = headlane.torch.optimize(model)
    gradients = []
    for each in (model, optimized):
        given = x.clone().requires_grad_()
        each(given).square().sum().backward()
        gradients.append(given.grad)
    assert gradients[1].equal(gradients[0])
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert optimized(x).equal(model(x))
    with torch.no_grad():
        assert optimized.train()(x).equal(model(x))


@torch.no_grad()
def test_bits_of_router_on_instruction_sets_and_threads(restore):
    optimized, x = headlane.torch.optimize(seeded(Router)), normal(29, 33)
    expected = optimized(x)
    for isa in headlane.available_isas():
        headlane.set_isa(isa)
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            assert optimized(x).equal(expected), (isa, threads)


class Named(Router):
    """The same by other calls, and with a count of them."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls += 1
        return torch.sigmoid(input=F.linear(x.to(torch.float32), self.weight.to(dtype=torch.float32)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@torch.no_grad()
def test_forms_of_calls(dtype):
    model, x = seeded(Named).to(dtype), normal(29, 33, dtype=dtype)
    optimized, twin = headlane.torch.optimize(model), headlane.torch.optimize(seeded(Router).to(dtype))
    assert optimized.calls == 0  # a copy was called
    assert optimized(x).equal(twin(x))
    assert optimized.calls == 1


FORWARD = [
    lambda self, x: F.silu(F.linear(x, self.weight)),
    lambda self, x: F.silu(input=F.linear(x, self.weight), inplace=False),
    lambda self, x: F.silu(F.linear(x, self.weight), True),  # in place: PyTorch's
    lambda self, x: F.gelu(F.linear(x, self.weight)),
    lambda self, x: F.gelu(F.linear(x, self.weight), approximate="tanh"),
    lambda self, x: torch.tanh(F.linear(x, self.weight)),
    lambda self, x: F.linear(x, self.weight).tanh(),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("form", range(len(FORWARD)))
@torch.no_grad()
def test_activations_of_a_row_alone_and_among_others(form, dtype):
    """PyTorch's have other bits for the last elements of a tensor."""
    model = seeded(type("Activated", (Router,), {"forward": FORWARD[form]})).to(dtype)
    optimized, x = headlane.torch.optimize(model), normal(29, 33, dtype=dtype)
    assert isinstance(optimized, CallsLinear)
    expected = optimized(x)
    close(expected, model(x))
    assert form == 2 or all(optimized(x[i : i + 1])[0].equal(expected[i]) for i in range(29))


@torch.no_grad()
def test_code_that_multiplies_by_something_else():
    model = seeded(Scaled)
    optimized = headlane.torch.optimize(model)
    assert type(optimized.weight) is nn.Parameter
    assert optimized(normal(3, 8)).equal(model(normal(3, 8)))


@torch.no_grad()
def test_weight_in_float32_of_other_code():
    """Only while the code of a router runs it is packed: a tensor of its own, as PyTorch's is."""
    optimized = headlane.torch.optimize(seeded(Router).bfloat16())
    optimized(normal(2, 33, dtype=torch.bfloat16))
    wide = optimized.weight.float()
    assert type(wide) is torch.Tensor
    wide.mul_(2)
    assert not wide.equal(optimized.weight.float())
