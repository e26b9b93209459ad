"""headlane.torch: parameters and buffers in recorded code, and changes in place of new results."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
import headlane.torch  # noqa: E402
import headlane.transformers  # noqa: E402
from decoder_cases import IDS, INPUTS, close, made, steps  # noqa: E402
from headlane.torch._attend import attend  # noqa: E402
from headlane.torch._nodes import NotPlain  # noqa: E402
from recorded_cases import Given  # noqa: E402
from torch import nn  # noqa: E402
from torch_cases import normal, seeded  # noqa: E402


def sinks_of(model):
    return [x.self_attn.sinks for x in model.model.layers]


@torch.no_grad()
def test_sinks_that_change(decoder_runs):
    """Those of a parameter that is changed in place, and those of another one, for which plans are made anew."""
    model = made("GptOss")
    optimized = headlane.torch.optimize(model)
    for change in ("none", "in place", "data", "another"):
        for one in (model, optimized):
            for layer, sinks in zip(one.model.layers, sinks_of(one)):
                if change == "in place":
                    sinks.add_(2)
                elif change == "data":
                    sinks.data = sinks.data - 3
                elif change == "another":
                    layer.self_attn.sinks = nn.Parameter(sinks + 5, requires_grad=False)
        for _ in range(2):
            decoder_runs.clear()
            close(steps(optimized, INPUTS[1])[0], steps(model, INPUTS[1])[0])
        assert bool(decoder_runs) is (change != "another")


def test_gradients_of_sinks(decoder_runs):
    model = made("GptOss").requires_grad_(False)
    optimized = headlane.torch.optimize(model)
    attention = optimized.model.layers[0].self_attn
    x, position_embeddings = normal(2, 5, 32), (normal(1, 5, 4, seed=2), normal(1, 5, 4, seed=3))
    given = {"attention_mask": None, "position_embeddings": position_embeddings}
    for _ in range(2):
        optimized(IDS)
        attention(x, **given)
    assert all(attention._headlane.plans.values())
    grads = []
    for one in (model, optimized):
        layer = one.model.layers[0].self_attn
        layer.sinks.requires_grad_(True)
        layer(x, **given)[0].sum().backward()
        grads.append(layer.sinks.grad.clone())
        layer.sinks.grad = None
        one(IDS).logits.square().sum().backward()
        grads.append(layer.sinks.grad)
    close(grads[2:], grads[:2])


@pytest.mark.parametrize(
    "code",
    [
        lambda g, x: attend(g.x, *call(g, {"softcap": x})),
        lambda g, x: attend(g.x, *call(g, {"s_aux": (x,)})),
        lambda g, x: attend(g.x, *call(g, {"s_aux": g.cos.unsqueeze(1)})),
        lambda g, x: attend(g.x, *call(g, {"position_bias": x})),
        lambda g, x: attend(g.x, *call(g, {}, x)),
        lambda g, x: g.x * x,
        lambda g, x: x * 2,
        lambda g, x: x if x.max() > 0 else 1,
        lambda g, x: torch.sigmoid(x),
        lambda g, x: g.graph.vector(nn.Parameter(normal(1, 4))),
        lambda g, x: g.graph.vector(normal(4).to_sparse()),
        lambda g, x: g.graph.vector(normal(4).to("meta")),
    ],
)
def test_other_uses_of_parameters(code):
    given = Given()
    with pytest.raises((NotPlain, TypeError)):
        code(given, given.graph.vector(nn.Parameter(normal(4))))


def call(g, options, mask=None):
    """A call of attention without scores of its own."""
    return headlane.transformers, g.graph.stand_in(nn.Identity()), g.x, g.x, mask, (), options


def test_sinks():
    given, parameter = Given(), nn.Parameter(normal(4))
    made = attend(given.x, *call(given, {"s_aux": given.graph.vector(parameter)}))
    assert made._node.what.options["s_aux"] is parameter
    assert given.graph.vectors == [parameter]


def total(g):
    """A new result."""
    one, two = (g.value(g.x._node.sizes, 32) for _ in range(2))
    return one + two


def imul(x, other):
    x *= other
    return x


def test_changes_in_place_of_new_results():
    given = Given()
    for other, kind in ((2, "scale"), (given.graph.vector(torch.tensor([3.0])), "weigh")):
        x = total(given)
        before, other_name = x._node, x
        assert imul(x, other) is x
        assert (x.node.kind, x.node.inputs[0]) == (kind, before)
        assert (other_name + x).node.inputs == (x.node, x.node)
    factors = x.node.inputs[1]
    assert factors.inputs[0].sizes is given.x._node.sizes
    assert factors.what(normal(2, 5, 7)).equal(torch.full((1, 5, 1), 3.0))


@pytest.mark.parametrize(
    "code",
    [
        lambda g, x, s: (torch.relu(x), imul(x, s)),
        lambda g, x, s: (x.view(*x.shape[:2], 4, 8), imul(x, s))[0],
        lambda g, x, s: (x[..., :4], imul(x, s))[0],
        lambda g, x, s: imul(x[..., :4], s),
        lambda g, x, s: imul(x.view(*x.shape[:2], 4, 8), s),
        lambda g, x, s: imul(g.value(x.shape[:2], 32), s),  # the caller's
        lambda g, x, s: imul(torch.relu(x), s),  # perhaps in place
        lambda g, x, s: imul(x, x),
        lambda g, x, s: imul(x, torch.tensor([2.0])),
        lambda g, x, s: imul(x, g.graph.vector(torch.ones(2))),
        lambda g, x, s: imul(x, g.graph.vector(torch.ones(1, dtype=torch.float64))),
        lambda g, x, s: imul(x.view(-1, 32), s),
        lambda g, x, s: imul(s, 2),
        lambda g, x, s: x.mul_(2),
    ],
)
def test_other_changes_in_place(code):
    given = Given()
    with pytest.raises((NotPlain, TypeError)):
        code(given, total(given), given.graph.vector(torch.ones(1)))


class Scaled(nn.Module):
    """Scales in place what it has a view of, or has read, or was given."""

    def __init__(self, scale):
        super().__init__()
        self.one, self.two = nn.Linear(32, 32), nn.Linear(32, 32)
        self.act = nn.Sigmoid()
        self.scale = scale
        self.register_buffer("factor", torch.ones(1))

    def forward(self, x):
        return self.scale(self, self.one(x), x)


def view(module, made, x):
    other = made.view(*made.shape[:2], 32)
    made *= module.factor
    return module.two(module.act(made) + other)


def read(module, made, x):
    other = module.act(made)
    made *= module.factor
    return module.two(other + made)


def name(module, made, x):
    other = made
    other *= module.factor
    return module.two(module.act(made))


def own(module, made, x):
    x *= module.factor
    return module.two(module.act(made)) + x


@pytest.mark.parametrize("scale", [view, read, name, own])
@torch.no_grad()
def test_code_that_scales_in_place(scale):
    """The first factor is one, which tells nothing."""
    model = seeded(Scaled, scale)
    optimized = headlane.torch.optimize(model)
    for factor in (1, 1, 0.5, 3):
        for one in (model, optimized):
            one.factor.fill_(factor)
        xs = [normal(2, 5, 32) for _ in range(2)]
        close([optimized(xs[0])], [model(xs[1])])
        assert xs[0].equal(xs[1])
    assert getattr(optimized, "has_plans", False) is (scale is name)


class Typed(nn.Module):
    """Code that asks for the type of a weight."""

    def __init__(self):
        super().__init__()
        self.norm, self.linear, self.act = nn.LayerNorm(32), nn.Linear(32, 32), nn.Sigmoid()

    def forward(self, x):
        return self.act(self.linear(self.norm(x.to(dtype=self.norm.weight.dtype)))) + x


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.no_grad()
def test_types_of_weights(dtype):
    model = seeded(Typed).to(dtype)
    optimized, x = headlane.torch.optimize(model), normal(2, 5, 32, dtype=dtype)
    for _ in range(2):
        torch.testing.assert_close(optimized(x), model(x), rtol=0, atol=8 * torch.finfo(dtype).eps)
    assert all(optimized._headlane.plans.values())


class Asking(nn.Module):
    """Code that asks for numbers of a layer's parameter."""

    def __init__(self, name):
        super().__init__()
        self.linear, self.out, self.act = nn.Linear(32, 32), nn.Linear(32, 32), nn.Sigmoid()
        self.name = name

    def forward(self, x):
        return self.out(self.act(self.linear(x))) * self.factor(getattr(self.linear, self.name))

    def factor(self, parameter):
        return 2 if parameter.sum() > 0 else 1


class Comparing(Asking):
    def factor(self, parameter):
        return 2 if (parameter > 0).any() else 1


class Constant(Asking):
    def factor(self, parameter):
        return float(parameter.flatten()[0])


@pytest.mark.parametrize("name", ["weight", "bias"])
@pytest.mark.parametrize("kind", [Asking, Comparing, Constant])
@torch.no_grad()
def test_numbers_of_parameters(kind, name):
    """They may change between calls, as those of other parameters."""
    model = seeded(kind, name)
    optimized, x = headlane.torch.optimize(model), normal(2, 5, 32)
    assert not getattr(optimized, "has_plans", False)
    for value in (1, 1, -1):
        for one in (model, optimized):
            one.linear.bias.fill_(value)
        close([optimized(x)], [model(x)])
