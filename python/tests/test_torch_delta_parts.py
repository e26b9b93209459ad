"""headlane.torch: what gates, gated norms and states may be in the code of linear attention."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import headlane.torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from delta_cases import (  # noqa: E402
    HEADS,
    VALUE_DIM,
    DeltaGiven,
    refused,
)
from headlane.torch._gated_norms import GatedNorm  # noqa: E402

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def rate(g):
    return -g.vectors["a_log"].float().exp()


def biased(g, x=None):
    return (g.decay if x is None else x).float() + g.vectors["dt_bias"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_gates(dtype):
    """The bias is added in float32, whatever type the value has."""
    given = DeltaGiven(dtype)
    codes = [lambda g: rate(g) * F.softplus(biased(g))]
    if dtype is torch.float32:
        codes.append(lambda g: rate(g) * F.softplus(g.decay + g.vectors["dt_bias"]))
        codes.append(lambda g: rate(g) * F.softplus(g.vectors["dt_bias"] + g.decay))
    else:
        refused(lambda g: g.decay + g.vectors["dt_bias"], given)
    for code in codes:
        gate = code(given)
        assert (gate.value.node, gate.dt_bias, gate.a_log) == (given.decay.node, given.dt_bias, given.a_log)
    assert not any(x.kind != "input" for x in given.graph.nodes)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "code",
    [
        lambda g: F.softplus(g.decay),
        lambda g: F.softplus(g.decay.float()),
        lambda g: rate(g) * F.softplus(g.decay.float()),
        lambda g: F.softplus(F.softplus(biased(g))),
        lambda g: F.softplus(rate(g) * F.softplus(biased(g))),
        lambda g: F.softplus(biased(g), beta=2.0),
        lambda g: F.softplus(biased(g), threshold=30.0),
        lambda g: F.softplus(biased(g), 2.0),
        lambda g: F.softplus(biased(g), 1.0, 30.0),
        lambda g: F.relu(biased(g)),
        lambda g: torch.sigmoid(biased(g)),
        lambda g: torch.exp(biased(g)),
        lambda g: biased(g) + g.vectors["dt_bias"],
        lambda g: F.softplus(biased(g)) + g.vectors["dt_bias"],
        lambda g: g.decay.float() + g.vectors["dt_bias"].float(),
        lambda g: biased(g) + g.decay,
        lambda g: g.decay.float() + 1.0,
        lambda g: biased(g, g.heads(HEADS, 1)),
        lambda g: g.gate(g.decay.view(-1, HEADS)).value.shape,
        lambda g: rate(g) * biased(g),
        lambda g: rate(g) * (rate(g) * F.softplus(biased(g))),
        lambda g: g.vectors["a_log"].float().exp() * F.softplus(biased(g)),
        lambda g: g.vectors["a_log"].float() * F.softplus(biased(g)),
        lambda g: (-g.vectors["a_log"].float()).exp(),
        lambda g: -g.vectors["a_log"].float(),
        lambda g: -rate(g),
        lambda g: g.vectors["a_log"].float().exp().exp(),
        lambda g: rate(g).exp(),
        lambda g: g.vectors["a_log"].exp(),
        lambda g: g.vectors["a_log"].double(),
        lambda g: g.vectors["a_log"].to(torch.float32),
        lambda g: g.vectors["a_log"].float().double(),
        lambda g: torch.exp2(g.vectors["a_log"].float()),
        lambda g: g.gate().shape,
        lambda g: bool(g.gate()),
    ],
)
def test_other_gates(code, dtype):
    refused(code, DeltaGiven(dtype))


@pytest.mark.parametrize(
    "code",
    [
        lambda g: F.softplus(biased(g)) * rate(g),
        lambda g: g.vectors["dt_bias"] * F.softplus(biased(g)),
        lambda g: rate(g) * 2.0 * F.softplus(biased(g)),
        lambda g: -g.vectors["a_log"],
        lambda g: biased(g) * 2.0,
    ],
)
def test_operators_that_are_not_there(code):
    with pytest.raises(TypeError):
        code(DeltaGiven())


class Gated(torch.nn.Module):
    """As that of Qwen3-Next."""

    def __init__(self, width=VALUE_DIM):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(0.5, 2, width))
        self.eps = 1e-5

    def forward(self, x, gate):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return (self.weight * wide * F.silu(gate.float())).to(x.dtype)


def norm(width=VALUE_DIM, dtype=torch.float32):
    (made,) = headlane.torch.optimize(torch.nn.Sequential(Gated(width)).eval().to(dtype))
    assert isinstance(made, GatedNorm)
    return made


def two(g, width=HEADS * VALUE_DIM):
    return g.value(width), g.value(width)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", ["heads", "flat", "whole", "flat and whole", "one head"])
def test_gated_norms(form, dtype):
    given = DeltaGiven(dtype)
    width = VALUE_DIM if "head" in form or form == "flat" else HEADS * VALUE_DIM
    all_columns = VALUE_DIM if form == "one head" else HEADS * VALUE_DIM
    module, values = norm(width, dtype), two(given, all_columns)
    shaped = values
    if "head" in form:
        shaped = [x.view(*given.sizes, -1, VALUE_DIM) for x in values]
    if "flat" in form:
        shaped = [x.view(-1, width) for x in values]
    made = given.graph.call(module, tuple(shaped), {})
    node = made._node
    assert (node.kind, node.what) == ("gated_norm", module)
    assert node.inputs == tuple(x.node for x in values)
    assert (node.sizes, node.width) == (given.sizes, all_columns)
    assert made.is_flat is ("flat" in form)
    assert made.reshape(*given.sizes, -1).shape == (*given.sizes, all_columns)
    if form == "heads":
        assert made.shape == (*given.sizes, HEADS, VALUE_DIM)
    elif made.is_flat:
        refused(lambda g: made.shape, given)
    read = [(there, name) for there, name, _ in given.graph.reads.values()]
    assert any(there is module._parameters and name == "weight" for there, name in read)
    assert any(there is vars(module) and name == "eps" for there, name in read)


@pytest.mark.parametrize(
    "arguments",
    [
        lambda g: (g.values,),
        lambda g: (g.values, g.values, g.values),
        lambda g: (g.values, torch.ones(2, 3, HEADS, VALUE_DIM)),
        lambda g: (g.values, g.values._own_node()),
        lambda g: two(g),  # as wide as all heads
        lambda g: (g.values, g.value(HEADS * VALUE_DIM)),
        lambda g: (g.value(HEADS * VALUE_DIM), g.values),
        lambda g: (g.query, g.query),
        lambda g: (g.values, g.heads(HEADS + 1, VALUE_DIM)),
        lambda g: (g.values, g.heads(1, VALUE_DIM)),
        lambda g: (g.values, g.value(VALUE_DIM)),
        lambda g: (g.values, DeltaGiven().values),
        lambda g: (g.values.transpose(1, 2), g.values.transpose(1, 2)),
        lambda g: (g.values.transpose(1, 2), g.values),
        lambda g: (g.values.reshape(-1, VALUE_DIM), g.values),
        lambda g: (g.values, g.values.reshape(-1, VALUE_DIM)),
        lambda g: (g.values.reshape(*g.sizes, -1).transpose(1, 2),) * 2,
        lambda g: (g.value(None), g.value(None)),
        lambda g: (g.heads(1, VALUE_DIM), g.value(VALUE_DIM)),  # of which one would be repeated
        lambda g: (g.value(VALUE_DIM), g.heads(1, VALUE_DIM)),
    ],
)
def test_other_gated_norms(arguments):
    given = DeltaGiven()
    module, given_to = norm(), arguments(given)
    assert "gated_norm" not in refused(lambda g: g.graph.call(module, given_to, {}), given)


def test_gated_norms_that_are_none():
    given, module = DeltaGiven(torch.bfloat16), norm()
    refused(lambda g: g.graph.call(module, (g.values, g.values), {}), given)  # of another type
    given = DeltaGiven()
    refused(lambda g: g.graph.call(module, (g.values,), {"gate": g.values}), given)
    refused(lambda g: g.graph.call(module, (g.values, g.values), {"other": 1}), given)
    module._headlane = None
    refused(lambda g: g.graph.call(module, (g.values, g.values), {}), given)


@pytest.mark.parametrize(
    "code",
    [
        lambda g, state: g.cache.update_recurrent_state(state, 1),
        lambda g, state: g.cache.update_recurrent_state(state, 0, 1),
        lambda g, state: g.cache.update_recurrent_state(state, 0, state_idx=1),
        lambda g, state: g.cache.update_recurrent_state(state, "0"),
        lambda g, state: g.cache.update_recurrent_state(g.attended_with(1)[1], 0),
        lambda g, state: g.cache.update_recurrent_state(g.state(), 0),
        lambda g, state: g.cache.update_recurrent_state(g.cache.get_conv_state(0), 0),
        lambda g, state: g.cache.update_recurrent_state(None, 0),
        lambda g, state: g.cache.update_recurrent_state(torch.zeros(1), 0),
        lambda g, state: DeltaGiven().cache.update_recurrent_state(state, 0),
        lambda g, state: g.cache.get_recurrent_state(0, 1),
        lambda g, state: g.cache.get_recurrent_state(0, state_idx=1),
        lambda g, state: g.cache.get_recurrent_state(None),
        lambda g, state: g.cache.get_recurrent_state(True),
        lambda g, state: g.cache.get_conv_state(0, 1),
        lambda g, state: g.cache.get_conv_state(0, state_idx=1),
        lambda g, state: g.cache.get_conv_state(0.0),
        lambda g, state: g.cache.update_conv_state(g.channels, 0, 1, 4),
        lambda g, state: g.cache.update_conv_state(g.channels, "0", 0, 4),
        lambda g, state: g.cache.layers[0],
        lambda g, state: g.cache.has_previous_state(0),
        lambda g, state: bool(g.cache),
        lambda g, state: state.clone(),
        lambda g, state: state.shape,
        lambda g, state: bool(state),
        lambda g, state: state == 0,
    ],
)
def test_other_states(code):
    given = DeltaGiven()
    _, state = given.attended_with(0)
    refused(lambda g: code(g, state), given)
    assert not given.graph.states[0].is_kept


def test_the_past_is_not_recorded():
    given = DeltaGiven()
    assert given.cache.is_recording_past(0) is False
