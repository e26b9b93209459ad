"""headlane.torch: results of mixtures of experts in recorded code, of which plans read the first one."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
import headlane.torch  # noqa: E402
import headlane.transformers  # noqa: E402
from decoder_cases import close, made  # noqa: E402
from headlane.torch import _fused  # noqa: E402
from headlane.torch._experts import results_of  # noqa: E402
from torch import nn  # noqa: E402
from torch_cases import normal, seeded  # noqa: E402
from transformers.models.gpt_oss import modeling_gpt_oss  # noqa: E402


def returns_two(x):
    if x > 1:
        return x, 1
    return 2, x


def returns_two_or_one(x):
    if x > 1:
        return x, 1
    return x


def returns_two_or_three(x):
    if x > 1:
        return x, 1
    return x, 1, 2


def returns_what_it_is_told(x):
    made = x, 1
    return made


def returns_nothing(x):
    pass


def test_how_many_results_code_returns():
    counts = {
        returns_two: 2,
        returns_two_or_one: 0,
        returns_two_or_three: 0,
        returns_what_it_is_told: 0,
        returns_nothing: 0,
    }
    assert {function: results_of(function) for function in counts} == counts


class Mixture(modeling_gpt_oss.GptOssMLP):
    """Returns one result more than its layer takes."""

    def forward(self, x):
        made, scores = super().forward(x)
        return made, scores, 1


class Either(modeling_gpt_oss.GptOssMLP):
    """Returns one result or two."""

    def forward(self, x):
        made, scores = super().forward(x)
        if self.training:
            return made
        return made, scores


class Layer(modeling_gpt_oss.GptOssDecoderLayer):
    """Does something with the second result of its mixture."""

    def forward(self, hidden_states):
        made, scores = self.mlp(self.post_attention_layernorm(hidden_states))
        return made * self.factor(scores) + hidden_states

    def factor(self, scores):
        return 1


class Told(Layer):
    def factor(self, scores):
        return scores.sum()


class Asked(Layer):
    def factor(self, scores):
        return 1 if (scores > 0.5).any() else 2


class Kept(Layer):
    def factor(self, scores):
        self.__dict__.setdefault("seen", []).append(scores)
        return 1


def layer_with(kind, mixture):
    layer = made("GptOss").model.layers[0]
    layer.__class__, layer.mlp.__class__ = kind, mixture
    return layer


@pytest.mark.parametrize("kind", [Layer, Told, Asked, Kept])
@torch.no_grad()
def test_other_results_of_mixtures(kind):
    """Only the first one is read in a plan."""
    layer = layer_with(kind, modeling_gpt_oss.GptOssMLP)
    optimized = headlane.torch.optimize(layer)
    for seed in range(3):
        x = normal(2, 5, 32, seed=seed)
        close([optimized(x)], [layer(x)])
    assert getattr(optimized, "has_plans", False) is (kind is Layer)


@pytest.mark.parametrize("mixture", [Mixture, Either])
@torch.no_grad()
def test_other_mixtures(mixture):
    optimized = headlane.torch.optimize(layer_with(Layer, mixture))
    assert not getattr(optimized, "has_plans", False)


@torch.no_grad()
def test_a_mixture_that_returns_another_tuple():
    """A hook may make another one: the layer then sees it, not the plan."""
    layer = layer_with(Layer, modeling_gpt_oss.GptOssMLP)
    optimized, x = headlane.torch.optimize(layer), normal(2, 5, 32)
    expected = optimized(x)
    assert optimized(x).equal(expected)
    optimized.mlp.register_forward_hook(lambda *call: (2 * call[2][0], 0))
    assert not optimized(x).equal(expected)
    optimized.mlp._forward_hooks.clear()
    assert optimized(x).equal(expected)


class Flat(modeling_gpt_oss.GptOssMLP):
    """Returns a row for each token, and one more where it is told to."""

    more = 0

    def forward(self, x):
        made, scores = super().forward(x)
        made = made.flatten(0, 1)
        return torch.cat((made, made[: self.more])), scores


class Viewed(Layer):
    def forward(self, hidden_states):
        made, _ = self.mlp(self.post_attention_layernorm(hidden_states))
        return 2 * made.view(hidden_states.shape) + hidden_states


@torch.no_grad()
def test_results_that_are_flat():
    layer = layer_with(Viewed, Flat)
    optimized, x = headlane.torch.optimize(layer), normal(2, 5, 32)
    for _ in range(3):
        close([optimized(x)], [layer(x)])
    (plan,) = optimized._headlane.plans.values()
    assert plan is not None
    optimized.mlp.__dict__["more"] = 1
    assert plan.run([x]) is NotImplemented
    with pytest.raises(RuntimeError, match="shape"):
        optimized(x)


class Direct(modeling_gpt_oss.GptOssDecoderLayer):
    """A layer that calls a router and experts in its own code."""

    def forward(self, hidden_states):
        hidden_states = 2 * hidden_states
        flat = self.post_attention_layernorm(hidden_states).reshape(-1, hidden_states.shape[-1])
        made = self.mixed(flat, *self.router(flat))
        return made.reshape(hidden_states.shape) + hidden_states

    def mixed(self, x, logits, factors, index):
        return self.experts(x, index, factors)


class Reading(Direct):
    def mixed(self, x, logits, factors, index):
        return self.experts(x, index, factors) * (1 if (factors > 0.9).any() else 2)


class Computing(Direct):
    def mixed(self, x, logits, factors, index):
        return self.experts(x, index, 2 * factors)


class Unpacking(Direct):
    def mixed(self, x, logits, factors, index):
        return self.experts(x, *(y for y in (index, factors)))


class Keeping(Direct):
    def mixed(self, x, logits, factors, index):
        self.__dict__["logits"] = logits
        return self.experts(x, index, factors)


class Exchanging(Direct):
    def mixed(self, x, logits, factors, index):
        return self.experts(factors, index, x)


class Router(nn.Module):
    """Weighs its input."""

    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(32, 4, bias=False)
        self.scale = nn.Parameter(normal(32))

    def forward(self, x):
        logits = self.proj(x * self.scale)
        factors, index = logits.topk(2, -1)
        return logits, factors.softmax(-1), index


def direct_layer(kind):
    layer = layer_with(kind, modeling_gpt_oss.GptOssMLP)
    layer.router, layer.experts = seeded(Router), layer.mlp.experts
    del layer.mlp
    return layer


@pytest.mark.parametrize("kind", [Direct, Unpacking])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.no_grad()
def test_layers_that_call_experts(kind, dtype):
    """Both are called as they would be without a plan, and so are their hooks, but not by one."""
    layer = direct_layer(kind).to(dtype)
    optimized = headlane.torch.optimize(layer)
    for seed, shape in enumerate(((2, 5), (2, 5), (1, 1))):
        x = normal(*shape, 32, seed=seed, dtype=dtype)
        made = optimized(x)
        assert made.equal(kind.forward(optimized, x))
        torch.testing.assert_close(made, layer(x), rtol=0, atol=64 * torch.finfo(dtype).eps)
    (plan,) = optimized._headlane.plans.values()
    assert plan is not None
    assert plan.applies()
    handle = optimized.router.register_forward_hook(lambda module, given, made: made[:2])
    assert not plan.applies()
    handle.remove()
    optimized.router.proj.register_forward_hook(lambda *call: 2 * call[2])
    assert not optimized(x).equal(made)


@torch.no_grad()
def test_parts_that_return_other_results(monkeypatch):
    """A plan says so, as there is no cache, and the layer's own code sees them."""
    optimized, x = headlane.torch.optimize(direct_layer(Direct)), normal(2, 5, 32)
    optimized(x)
    (plan,) = optimized._headlane.plans.values()
    with monkeypatch.context() as context:
        context.setattr(Router, "forward", lambda module, x: (x, x))
        assert plan.run([x]) is NotImplemented
    assert plan.run([x]).equal(optimized(x))


@pytest.mark.parametrize("kind", [Reading, Computing, Keeping, Exchanging])
@torch.no_grad()
def test_other_layers_that_call_experts(kind):
    optimized = headlane.torch.optimize(direct_layer(kind))
    assert not isinstance(optimized, _fused.Fused)
