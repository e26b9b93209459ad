"""headlane.torch: what the code of linear attention and its convolution may be, and what it may not."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from delta_cases import CHANNELS, DIM, HEADS, KEY_HEADS, KINDS, VALUE_DIM, DeltaGiven, refused  # noqa: E402
from headlane.torch._arguments import Input  # noqa: E402


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("activation", [None, "silu", "swish"])
def test_convolution(activation, has_bias, dtype):
    given = DeltaGiven(dtype, has_bias)
    made = given.convolved(given.channels, activation=activation).transpose(1, 2)
    node = made.node
    assert (node.kind, node.inputs, node.width) == ("convolve", (given.mixed.node,), CHANNELS)
    assert node.what == (given.conv, activation and "silu", None)
    assert made.shape == given.mixed.shape
    assert made.dtype is dtype
    assert given.graph.vectors[0] is given.conv.weight
    assert not given.graph.states


@pytest.mark.parametrize("axes", [(1, 2), (2, 1), (-1, -2), (-2, -1), (1, -1)])
def test_axes_and_the_last_ones(axes):
    """Where there are none before them, the last ones are all."""
    given = DeltaGiven()
    x = given.convolved(given.mixed.transpose(*axes))
    assert x.transpose(*axes).node is x[:, :, -given.length :].transpose(*axes).node


def test_convolution_of_columns():
    given = DeltaGiven()
    wide = given.value(CHANNELS + 9)
    made = given.convolved(wide[..., 5 : CHANNELS + 5].transpose(1, 2)).transpose(1, 2).node
    assert [(x.kind, x.what, x.inputs) for x in made.inputs] == [
        ("columns", (5, CHANNELS + 5, 0), (wide.node,))
    ]


@pytest.mark.parametrize("is_update", [False, True])
def test_convolution_with_a_state(is_update):
    given = DeltaGiven()
    made = given.updated(layer=3) if is_update else given.continued(layer=3)
    (state,) = given.graph.states
    assert made.node.what == (given.conv, "silu", state)
    assert (state.cache, state.layer, state.sizes) == (given.cache_node, 3, [(CHANNELS, 4)])
    assert not state.is_kept


@pytest.mark.parametrize(
    "code",
    [
        lambda g: g.mixed.transpose(0, 1),
        lambda g: g.mixed.transpose(0, 2),
        lambda g: g.mixed.transpose(1, 1),
        lambda g: g.convolved(g.mixed),
        lambda g: g.convolved(g.query.transpose(1, 2)),
        lambda g: g.mixed.view(-1, CHANNELS).transpose(1, 2),
        lambda g: g.convolved(g.channels).transpose(0, 1),
        lambda g: g.convolved(g.channels).transpose(2, 2),
        lambda g: g.convolved(g.value(CHANNELS - 1).transpose(1, 2)),
        lambda g: g.convolved(g.value(None).transpose(1, 2)),
        lambda g: g.convolved(g.channels, activation="relu"),
        lambda g: g.convolved(g.channels, activation="sigmoid"),
        lambda g: g.convolved(g.channels, bias=None),
        lambda g: g.convolved(g.channels, bias=g.graph.vector(g.conv.bias.detach())),
        lambda g: g.convolved(g.channels, bias=g.vectors["dt_bias"]),
        lambda g: g.convolved(g.channels, bias=g.conv.bias),
        lambda g: g.convolved(g.channels, weight=g.stand_in.weight),
        lambda g: g.convolved(g.channels, weight=g.conv.weight.squeeze(1)),
        lambda g: g.convolved(g.channels, weight=g.stand_in.weight.squeeze(0)),
        lambda g: g.convolved(g.channels, weight=g.stand_in.weight.squeeze(1).squeeze(1)),
        lambda g: g.stand_in.weight.shape,
        lambda g: g.convolved(g.channels, seq_idx=torch.zeros(1)),
        lambda g: g.convolved(g.channels, cu_seqlens=torch.zeros(1)),
        lambda g: g.convolved(torch.nn.functional.silu(g.channels)),
        lambda g: g.channels.shape,
        # With a state.
        lambda g: g.convolved(g.before(g.channels, kernel=3)),
        lambda g: g.convolved(g.before(g.channels, kernel=5)),
        lambda g: g.convolved(g.before(g.channels, kernel=None)),
        lambda g: g.before(g.channels).transpose(1, 2),
        lambda g: g.before(g.channels)[:, :, -g.length :],
        lambda g: g.before(g.mixed),
        lambda g: g.before(g.query.transpose(1, 2)),
        lambda g: g.before(g.before(g.channels)),
        lambda g: g.convolved(g.before(g.channels)).transpose(1, 2),  # those before are there, too
        lambda g: g.convolved(g.convolved(g.before(g.channels))),
        lambda g: g.before(g.convolved(g.before(g.channels))),
        lambda g: g.updated(g.before(g.channels)),
        lambda g: g.updated(g.convolved(g.before(g.channels))),
        lambda g: g.updated(g.mixed),
        lambda g: g.updated(g.channels, state=g.cache.get_recurrent_state(0)),
        lambda g: g.updated(g.channels, state=None),
        lambda g: g.updated(g.channels, state=torch.zeros(2, CHANNELS, 4)),
        lambda g: (g.updated(g.channels), g.updated(g.channels)),
        lambda g: (g.continued(), g.continued()),
        lambda g: (g.continued(), g.updated(g.channels)),
        lambda g: (g.before(g.channels), g.continued()),
        lambda g: (g.before(g.channels), g.updated()),
        lambda g: (g.continued(), g.before(g.channels)),
    ],
)
def test_other_convolutions(code):
    given = DeltaGiven()
    refused(code, given)
    assert not any(state.is_kept for state in given.graph.states)


def test_a_bias_that_is_not_there():
    given = DeltaGiven(bias=False)
    refused(lambda g: g.convolved(g.channels, bias=g.vectors["dt_bias"]), given)


@pytest.mark.parametrize(
    "code", [lambda g: g.channels + g.channels, lambda g: g.channels * 2.0, lambda g: g.stand_in.weight[:, 0]]
)
def test_operators_that_are_not_there(code):
    with pytest.raises(TypeError):
        code(DeltaGiven())


@pytest.mark.parametrize(
    "last",
    [
        lambda g: (slice(None), slice(None), -1),
        lambda g: (slice(None), slice(None), slice(-3, None)),
        lambda g: (slice(None), slice(None), slice(None, g.length)),
        lambda g: (slice(None), slice(None), slice(g.length, None)),
        lambda g: (slice(None), slice(None), slice(None, -g.length)),
        lambda g: (slice(None), slice(None), slice(-g.length, None, 1)),
        lambda g: (slice(None), slice(None), slice(-g.length, -g.length)),
        lambda g: (slice(None), slice(None), slice(-DeltaGiven().length, None)),
        lambda g: (slice(None), slice(None), slice(None)),
        lambda g: (slice(None), slice(-g.length, None)),
        lambda g: (slice(None), slice(-g.length, None), slice(None)),
        lambda g: (slice(1, None), slice(None), slice(-g.length, None)),
        lambda g: (slice(None), slice(1, None), slice(-g.length, None)),
        lambda g: (slice(None), slice(None), slice(-g.length, None), None),
        lambda g: (..., slice(-g.length, None)),
        lambda g: slice(-g.length, None),
    ],
)
def test_other_cuts(last):
    for is_longer in (True, False):
        given = DeltaGiven()
        x = given.channels
        x = given.convolved(given.before(x) if is_longer else x)
        assert refused(lambda g: x[last(g)], given) == []  # noqa: B023


def test_weights_of_other_modules():
    """Not of a convolution, or not a filter for each channel."""
    given = DeltaGiven()
    own = torch.nn.Module()
    own.weight = torch.nn.Parameter(torch.ones(4, 1, 3))
    others = [own, torch.nn.Conv1d(4, 6, 3), torch.nn.Conv2d(4, 4, 3, groups=4), torch.nn.Conv1d(4, 4, 3)]
    others.append(torch.nn.Conv1d(4, 4, 3, groups=4).to("meta"))
    others.append(torch.nn.Conv1d(4, 4, 3, groups=4))
    others[-1].weight = torch.nn.Parameter(torch.ones(4, 1))
    for module in others:
        refused(lambda g: g.graph.stand_in(module).weight, given)  # noqa: B023
    assert not given.graph.vectors


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("has_state", [True, False])
def test_attention(has_state, kind):
    given = DeltaGiven()
    mixed = given.continued() if has_state else given.convolved(given.channels).transpose(1, 2)
    g, beta = given.gate(), given.beta.sigmoid()
    options = given.states_of(0) if has_state else {}
    made, state = given.attended(*given.heads_of(mixed), g, beta, kind=kind, chunk_size=16, **options)
    node = made._node
    assert (node.kind, node.sizes, node.width) == ("linear_attention", given.sizes, HEADS * VALUE_DIM)
    assert node.inputs == (*[mixed.node] * 3, given.decay.node, beta.node)
    assert node.what.columns == (0, KEY_HEADS * DIM, 2 * KEY_HEADS * DIM)
    assert node.what.heads == (HEADS, KEY_HEADS, DIM, VALUE_DIM)
    assert (node.what.eps, node.what.a_log, node.what.dt_bias) == (1e-6, given.a_log, given.dt_bias)
    assert made.shape == (*given.sizes, HEADS, VALUE_DIM)
    if not has_state:
        assert (node.what.state, state) == (None, None)
        return
    (of,) = given.graph.states
    assert node.what.state is of
    assert of.sizes == [(CHANNELS, 4), (HEADS, DIM, VALUE_DIM)]
    assert not of.is_kept
    given.cache.update_recurrent_state(state, 0)
    assert of.is_kept
    refused(lambda g: g.cache.update_recurrent_state(state, 0), given)


def test_values_of_their_own():
    """Queries, keys and values that are no columns of one value; several layers, each with its state."""
    given, made = DeltaGiven(), []
    for layer in (2, 1):
        given.continued(layer=layer)
        options = given.states_of(layer)
        made.append(given.attended(given.query, given.key, given.values, given.gate(), given.beta, **options))
    for (one, state), of in zip(made, given.graph.states, strict=True):
        assert one._node.inputs[:3] == (given.query._node, given.key._node, given.values._node)
        assert one._node.what.columns == (0, 0, 0)
        assert one._node.what.state is of
        given.cache.update_recurrent_state(state, of.layer)
    assert [x.layer for x in given.graph.states] == [2, 1]


def test_several_caches():
    """The same layer of each has a state of its own."""
    given, nodes = DeltaGiven(), []
    for _ in range(2):
        given.continued()
        nodes.append(given.cache_node)
        given.cache = Input(object).value(given.graph)
        given.cache_node = given.graph.nodes[-1]
    assert [x.cache for x in given.graph.states] == nodes


def test_factors_of_values():
    """Twice a sigmoid, where eigenvalues may be negative."""
    given = DeltaGiven()
    beta = given.beta.sigmoid() * 2.0
    made, _ = given.attended(given.query, given.key, given.values, given.gate(), beta)
    node = made._node.inputs[4]
    assert (node.kind, node.what, node.inputs[0].kind) == ("scale", 2.0, "sigmoid")
    assert node.inputs[0].inputs == (given.beta.node,)


@pytest.mark.parametrize(
    "change",
    [
        lambda g: {"use_qk_l2norm_in_kernel": False},
        lambda g: {"use_qk_l2norm_in_kernel": None},
        lambda g: {"cu_seqlens": torch.zeros(2)},
        lambda g: {"seq_idx": torch.zeros(2)},
        lambda g: {"scale": 0.5},
        lambda g: {"z": g.beta},
        lambda g: {"output_final_state": True},
        lambda g: {"query": g.heads(3, DIM), "key": g.heads(3, DIM)},  # 4 heads are no multiple of 3
        lambda g: {"query": g.heads(8, DIM), "key": g.heads(8, DIM)},
        lambda g: {"query": g.heads(1, DIM)},
        lambda g: {"key": g.heads(1, DIM)},
        lambda g: {"key": g.heads(KEY_HEADS, DIM - 1)},
        lambda g: {"query": g.query.transpose(1, 2), "key": g.key.transpose(1, 2)},
        lambda g: {"value": g.values.transpose(1, 2)},
        lambda g: {"query": g.value(KEY_HEADS * DIM), "key": g.value(KEY_HEADS * DIM)},
        lambda g: {"value": g.value(HEADS * VALUE_DIM)},
        lambda g: {"query": g.value(KEY_HEADS * DIM).view(-1, DIM)},
        lambda g: {"value": g.value(HEADS * VALUE_DIM).view(-1, VALUE_DIM)},
        lambda g: {"query": DeltaGiven().query},
        lambda g: dict.fromkeys(("query", "key"), DeltaGiven().query),
        lambda g: {"key": DeltaGiven().key},
        lambda g: {"value": DeltaGiven().values},
        lambda g: {"beta": g.value(HEADS + 1)},
        lambda g: {"beta": g.value(1)},
        lambda g: {"beta": g.heads(HEADS, 1)},
        lambda g: {"beta": g.value(HEADS).view(-1, HEADS)},
        lambda g: {"beta": g.heads(HEADS, DIM)},
        lambda g: {"beta": DeltaGiven().beta},
        lambda g: {"beta": g.gate()},
        lambda g: {"beta": g.vectors["dt_bias"]},
        lambda g: {"g": g.gate(g.value(HEADS + 1))},
        lambda g: {"g": g.gate(g.value(HEADS * DIM))},
        lambda g: {"g": g.gate(DeltaGiven().decay)},
        lambda g: {"g": torch.nn.functional.softplus(g.decay + g.vectors["dt_bias"])},  # without a rate
        lambda g: {"g": g.decay + g.vectors["dt_bias"]},
        lambda g: {"g": g.decay},
        lambda g: {"g": None},
        # States.
        lambda g: {"initial_state": torch.zeros(2, HEADS, DIM, VALUE_DIM), "output_final_state": True},
        lambda g: {"initial_state": g.state(layer=1), "output_final_state": True},  # before its convolution's
        lambda g: {"initial_state": g.state(), "output_final_state": False},
        lambda g: {"initial_state": g.cache.get_conv_state(0), "output_final_state": True},
        lambda g: {"initial_state": g.attended_with(0)[1], "output_final_state": True},
        lambda g: (g.attended_with(0), g.states_of(0))[1],  # read twice
    ],
)
def test_other_attentions(change):
    given = DeltaGiven()
    given.continued()
    of = {
        "query": given.query,
        "key": given.key,
        "value": given.values,
        "g": given.gate(),
        "beta": given.beta,
    }
    others = change(given)
    count = sum(x.kind == "linear_attention" for x in given.graph.nodes)
    assert "linear_attention" not in refused(lambda g: g.attended(**{**of, **others}), given)
    assert count == sum(x.kind == "linear_attention" for x in given.graph.nodes)
