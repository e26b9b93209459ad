"""Plans of layers after their modules, parameters or numbers were changed in ways that few programs use, and of
layers whose parts change themselves when they are called.
"""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
import headlane.torch  # noqa: E402
from decoder_cases import IDS, made  # noqa: E402
from test_torch_shared_keys import made as made_gemma  # noqa: E402
from torch import nn  # noqa: E402
from torch_cases import normal, seeded  # noqa: E402
from transformers.cache_utils import KVSharingDict  # noqa: E402
from transformers.models.gpt_oss import modeling_gpt_oss  # noqa: E402

TABLES = normal(1, 5, 8, seed=2), normal(1, 5, 8, seed=3)
MASK = torch.ones(1, 1, 5, 5, dtype=torch.bool).tril()


def layer_result(layer):
    with torch.no_grad():
        return layer(normal(1, 5, 32), position_embeddings=TABLES, attention_mask=MASK)


def assert_close(given, expected):
    torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-5)


def other_modules(layer, other):
    layer._modules = {**layer._modules, "mlp": other.mlp}


def other_weights(layer, other):
    layer.mlp.down_proj._parameters = dict(other.mlp.down_proj._parameters)


def other_norm(layer, other):
    layer.input_layernorm._parameters = {"weight": nn.Parameter(3 * layer.input_layernorm.weight)}


@pytest.mark.parametrize("change", [other_modules, other_weights, other_norm])
def test_dicts_of_a_module_that_are_replaced(change):
    model, results = made("Llama"), []
    optimized = headlane.torch.optimize(model)
    for each in (model, optimized):
        layer, other = each.model.layers[:2]
        before = [layer_result(layer) for _ in range(2)]
        change(layer, other)
        results.append(layer_result(layer))
        assert (results[-1] - before[-1]).abs().max() > 0.01
    assert_close(results[1], results[0])


def test_buffers_that_are_replaced():
    model, results = made_gemma("own"), []
    optimized = headlane.torch.optimize(model)
    for each in (model, optimized):
        layer = each.model.layers[0]
        arguments = normal(1, 5, 32), normal(1, 5, 8, seed=4)
        with torch.no_grad():
            for _ in range(2):
                layer(*arguments, KVSharingDict(), TABLES, MASK)
            layer._buffers = {"layer_scalar": torch.tensor([3.0])}
            results.append(layer(*arguments, KVSharingDict(), TABLES, MASK))
    assert_close(results[1], results[0])


def test_a_copy_of_a_layer_with_another_child():
    model, results = made("Llama"), []
    optimized = headlane.torch.optimize(model)
    for each in (model, optimized):
        layer, other = each.model.layers[:2]
        layer_result(layer)
        copied = copy.copy(layer)
        copied._modules = {**layer._modules, "mlp": other.mlp}
        results += [layer_result(layer), layer_result(copied)]
    assert_close(results[2], results[0])
    assert_close(results[3], results[1])


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.act, self.down = nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)
        self.factor = nn.Buffer(torch.ones(1))

    def forward(self, x):
        y = x + self.down(self.act(self.up(x)))
        y *= self.factor
        return y


@pytest.mark.parametrize("factor", [normal(32, seed=1), torch.tensor([2.0], dtype=torch.float64)])
def test_the_data_of_a_factor_with_another_size_or_type(factor):
    model, x = seeded(Scaled), normal(2, 5, 32)
    optimized = headlane.torch.optimize(model)
    with torch.no_grad():
        optimized(x), optimized(x)
        model.factor.data = optimized.factor.data = factor
        assert_close(optimized(x), model(x))


@pytest.mark.parametrize("name", ["Mixtral", "GptOss"])
def test_gradients_of_a_weight_in_a_mixture(name):
    """They are wanted only after plans were made with gradients on."""
    model, gradients = made(name), []
    optimized = headlane.torch.optimize(model)
    for _ in range(2):
        optimized(input_ids=IDS, use_cache=False)
    for each in (model, optimized):
        each.requires_grad_(False)
        mixture = each.model.layers[0].mlp
        weight = (getattr(mixture, "gate", None) or mixture.router).weight
        weight.requires_grad_(True)
        each(input_ids=IDS, use_cache=False).logits.sum().backward()
        gradients.append(weight.grad)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-3, atol=1e-3)


class BalancedRouter(nn.Module):
    """Changes its bias in each call for the next one."""

    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(32, 4, bias=False)
        self.scale = nn.Parameter(normal(32))
        self.bias = nn.Buffer(torch.zeros(4))

    def forward(self, x):
        logits = self.proj(x * self.scale)
        index = (logits + self.bias).topk(2, -1).indices
        load = torch.bincount(index.flatten(), minlength=4).float()
        self.bias += 0.2 * (load.mean() - load).sign()
        return logits, logits.gather(-1, index).softmax(-1), index


class Routed(modeling_gpt_oss.GptOssDecoderLayer):
    def forward(self, x):
        x = 2 * x
        flat = self.post_attention_layernorm(x).reshape(-1, x.shape[-1])
        _, factors, index = self.router(flat)
        return self.experts(flat, index, factors).reshape(x.shape) + x


def routed():
    layer = made("GptOss").model.layers[0]
    layer.__class__ = Routed
    layer.router, layer.experts = seeded(BalancedRouter), layer.mlp.experts
    del layer.mlp
    return layer


def test_a_router_that_changes_its_bias_in_each_call():
    model, x = routed(), normal(2, 5, 32)
    optimized = headlane.torch.optimize(model)
    with torch.no_grad():
        for _ in range(4):
            assert_close(optimized(x), model(x))
            assert torch.equal(optimized.router.bias, model.router.bias)


class Counting(nn.Module):
    """A gate that counts its tokens, and draws a random number."""

    def __init__(self, gate):
        super().__init__()
        self.gate, self.tokens = gate, 0

    def forward(self, x):
        self.tokens += len(x)
        torch.rand(1)
        return self.gate(x)


def test_a_mixture_whose_gate_counts_and_draws():
    model, results = made("Mixtral"), []
    optimized = headlane.torch.optimize(model)
    for each in (model, optimized):
        for layer in each.model.layers:
            layer.mlp.gate = Counting(layer.mlp.gate)
        torch.manual_seed(1)
        with torch.no_grad():
            logits = each(input_ids=IDS, use_cache=False).logits
        results.append((logits, torch.rand(1), [x.mlp.gate.tokens for x in each.model.layers]))
    assert_close(results[1][0], results[0][0])
    assert results[1][1:] == results[0][1:]


def test_hooks_inside_a_mixture_see_each_call_once():
    optimized = headlane.torch.optimize(made("Mixtral"))
    seen = []
    for layer in optimized.model.layers:
        layer.mlp.gate.register_forward_hook(lambda *given: seen.append(1))
    with torch.no_grad():
        for count in (1, 2, 3):
            optimized(input_ids=IDS, use_cache=False)
            assert len(seen) == count * len(optimized.model.layers)
