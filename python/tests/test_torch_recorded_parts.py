"""headlane.torch: parts of heads, parameters and results of mixtures in recorded code, and what is not recorded."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
import headlane.torch  # noqa: E402
import headlane.transformers  # noqa: E402
from decoder_cases import IDS, INPUTS, close, made, steps  # noqa: E402
from headlane.torch._attend import attend  # noqa: E402
from headlane.torch._code import drop_unread_columns  # noqa: E402
from headlane.torch._experts import results_of  # noqa: E402
from headlane.torch._nodes import NotPlain  # noqa: E402
from recorded_cases import Given  # noqa: E402
from torch import nn  # noqa: E402
from torch_cases import normal  # noqa: E402
from transformers.models.gpt_oss import modeling_gpt_oss  # noqa: E402


def tables(g, axis=1):
    return [x.unsqueeze(axis) for x in (g.cos, g.sin)]


def turned(one, two, cos, sin):
    return torch.cat((one * cos - two * sin, two * cos + one * sin), dim=-1)


def test_halves():
    """Their tables are repeated once, and the halves are no operations."""
    given = Given()
    for x in (given.x, given.y):
        made = turned(*torch.chunk(x, 2, dim=-1), *tables(given))
        node = made._node
        assert (node.kind, node.what, node.width) == ("rotary", (8, 8, "halves", False), 32)
        assert node.inputs[0] is x._node
        assert made.shape == x.shape
    table = torch.arange(6.0).view(1, 2, 3)
    for one, of in zip(node.inputs[1:], (given.cos, given.sin)):
        assert one.inputs == (of._node,)
        assert one.what(table).equal(torch.cat((table, table), -1))
    drop_unread_columns(given.graph.nodes)
    assert sorted(x.kind for x in given.graph.nodes if x.kind != "input") == ["rotary"] * 2 + ["torch"] * 2


@pytest.mark.parametrize(
    "code",
    [
        lambda g, one, two: turned(two, one, *tables(g)),
        lambda g, one, two: turned(one, two, *tables(g, 2)),
        lambda g, one, two: turned(one, one, *tables(g)),
        lambda g, one, two: turned(one, torch.chunk(g.y, 2, -1)[1], *tables(g)),
        lambda g, one, two: turned(*torch.chunk(g.x, 4, -1)[:2], *tables(g)),
        lambda g, one, two: turned(*torch.split(g.x, [3, 5], -1), *tables(g)),
        lambda g, one, two: turned(one.transpose(1, 2), two.transpose(1, 2), *tables(g, 2)),
        lambda g, one, two: turned(one[..., :2], two[..., :2], *tables(g)),
        lambda g, one, two: turned(g.x[..., :4], g.x[..., 4:], *tables(g)),
        lambda g, one, two: turned(one, two, *[x[..., : x.shape[-1] // 2] for x in tables(g)]),
        lambda g, one, two: turned(one, two, *[torch.repeat_interleave(x, 2, 3) for x in tables(g)]),
        lambda g, one, two: turned(one.float(), two.float(), *tables(g)) if g.is_wide else None + 1,
        lambda g, one, two: torch.cat((one * g.cos.unsqueeze(1), two * g.sin.unsqueeze(1)), dim=-1),
        lambda g, one, two: one * g.cos.unsqueeze(1) - two,
        lambda g, one, two: torch.cat([(one * x) - (two * x) for x in tables(g)], dim=-1),
        lambda g, one, two: torch.cat(
            [(one * a) - (two * b) if i else (two * a) + (one * b) for i in (0, 1) for a, b in [tables(g)]],
            -1,
        ),
        lambda g, one, two: (one * tables(g)[0] - two * tables(g)[1]) + two,
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_halves(code, dtype):
    given = Given(dtype)
    given.is_wide = dtype is not torch.float32
    with pytest.raises((NotPlain, TypeError)):
        code(given, *torch.chunk(given.x, 2, dim=-1))
    assert not any(x.kind == "rotary" for x in given.graph.nodes)


def test_columns_that_are_read():
    given = Given()
    one, two = torch.chunk(given.x, 2, dim=-1)
    _ = one * 2
    drop_unread_columns(given.graph.nodes)
    assert one._node in given.graph.nodes
    assert two._node not in given.graph.nodes
    assert given.x._node.users == [one._node]


def fused(g, width=48):
    """A result with what 2 heads have in one product."""
    return torch.relu(g.value(g.x._node.sizes, width))


def parts(g, x, *sizes):
    return x.view(*g.x._node.sizes, *sizes)


def test_parts_of_heads():
    given = Given()
    for heads in (2, -1):
        made = parts(given, fused(given), heads, 3, 8)
        nodes = []
        for number in (0, 1, 2, -1):
            part = made[..., number, :]
            assert part.shape == (*given.x._node.sizes, 2, 8)
            nodes.append(part.transpose(1, 2)._node)
        assert [x.what for x in nodes] == [(0, 8, 24), (8, 16, 24), (16, 24, 24), (16, 24, 24)]
        assert nodes[2] is nodes[3]


@pytest.mark.parametrize(
    "code",
    [
        lambda g, x: parts(g, x, 3, 3, 8),
        lambda g, x: parts(g, x, 2, -1, 8),
        lambda g, x: parts(g, x, 2, 3, -1),
        lambda g, x: parts(g, x, 2, 0, 8),
        lambda g, x: x.view(*g.x._node.sizes[::-1], 2, 3, 8),
        lambda g, x: parts(g, x, 2, 3, 8).shape,
        lambda g, x: parts(g, x, 2, 3, 8)[..., 3, :],
        lambda g, x: parts(g, x, 2, 3, 8)[..., -4, :],
        lambda g, x: parts(g, x, 2, 3, 8)[..., True, :],
        lambda g, x: parts(g, x, 2, 3, 8)[..., [2], :],
        lambda g, x: parts(g, x, 2, 3, 8)[..., 0:1, :],
        lambda g, x: parts(g, x, 2, 3, 8)[..., 0],
        lambda g, x: parts(g, x, 2, 3, 8)[0],
        lambda g, x: parts(g, x, 2, 3, 8)[:, :, :, 0],
        lambda g, x: parts(g, x, 2, 3, 8)[:, 0, :],
        lambda g, x: parts(g, x, 2, 3, 8)[..., 0, 1:],
        lambda g, x: list(parts(g, x, 2, 3, 8)),
        lambda g, x: parts(g, x, 2, 3, 8).transpose(1, 2),
        lambda g, x: parts(g, x, 2, 3, 8) * 2,
    ],
)
def test_other_parts_of_heads(code):
    given = Given()
    with pytest.raises((NotPlain, TypeError)):
        code(given, fused(given))


def test_one_head():
    """With an axis of its own before or behind the positions: its parts are columns, and may be heads again."""
    given = Given()
    for axis in (1, 2):
        x = fused(given)
        batch, length = x.shape[:2]
        one, two = x.unsqueeze(axis).split((32, 16), dim=3)
        assert (one.shape[3], two.shape[3], one.shape[axis], one.shape[3 - axis]) == (32, 16, 1, length)
        if axis == 1:
            one, two = one.view(batch, length, -1, 8).transpose(1, 2), two
            assert one.for_attention() == (x._node, ((0, 32), 8))
            assert two.for_attention() == (x._node, ((32, 48), 16))
            assert one.shape == (batch, 4, length, 8)
    assert not [x for x in given.graph.nodes if x.kind == "columns"]


@pytest.mark.parametrize(
    "code",
    [
        lambda x, b, n: x.unsqueeze(0),
        lambda x, b, n: x.unsqueeze(3),
        lambda x, b, n: x.view(b, n, 2, 24).unsqueeze(1),
        lambda x, b, n: x.view(-1, 48).unsqueeze(1),
        lambda x, b, n: x.unsqueeze(1).unsqueeze(1),
        lambda x, b, n: x.unsqueeze(1).view(n, b, -1, 8),
        lambda x, b, n: x.unsqueeze(1).view(b, 1, n, 47),
        lambda x, b, n: x.unsqueeze(1).view(b, n, 5, 8),
        lambda x, b, n: x.unsqueeze(1).split((32, 8), dim=3),
        lambda x, b, n: x.unsqueeze(1).split((1, 1), dim=1),
        lambda x, b, n: x.unsqueeze(1).split((32, 16), dim=2),
        lambda x, b, n: x.unsqueeze(2).for_attention(),
        lambda x, b, n: x.view(b, n, 2, 24).transpose(1, 2).view(b, n, -1),  # of more than one head
        lambda x, b, n: torch.relu(x.unsqueeze(1)),
        lambda x, b, n: x.unsqueeze(1) + x,
    ],
)
def test_other_axes_of_one_head(code):
    x = fused(Given())
    with pytest.raises((NotPlain, TypeError)):
        code(x, *x.shape[:2])


def as_complex(x):
    return torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))


def test_angles_by_index():
    given = Given()
    x = given.x.transpose(1, 2)
    made = torch.view_as_real(as_complex(x) * given.turns[:, :, None, :]).flatten(3).type_as(x)
    assert made._node.what == (8, 8, "neighbours_by_half", False)
    for index in (
        (slice(None), None, slice(None), slice(None)),
        (slice(None), slice(None), None),
        (slice(None), slice(None), None, slice(1)),
        (..., None, slice(None)),
        0,
    ):
        with pytest.raises(NotPlain):
            given.turns[index]
    with pytest.raises(NotPlain):
        given.turns[:, :, None, :][:, :, None, :]
    with pytest.raises(NotPlain):  # heads are first
        torch.view_as_real(as_complex(given.x) * given.turns[:, :, None, :]).flatten(3).type_as(x)


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
