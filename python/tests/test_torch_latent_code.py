"""headlane.torch: what the code of latent attention and of factors may be, and what it may not."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from headlane.torch._arguments import Input  # noqa: E402
from headlane.torch._from_cache import entries_of  # noqa: E402
from headlane.torch._nodes import NotPlain, Size  # noqa: E402
from recorded_cases import Given  # noqa: E402

CPU = torch.device("cpu")


def halves(x, cos, sin):
    one, two = x[..., 0::2], x[..., 1::2]
    return torch.cat([one * cos - two * sin, two * cos + one * sin], dim=-1)


def tables(g, axis=1):
    return [x[..., : x.shape[-1] // 2].unsqueeze(axis) for x in (g.cos, g.sin)]


def as_complex(x):
    return torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))


def turned(x, turns):
    return torch.view_as_real(as_complex(x) * turns.unsqueeze(1).to(CPU)).flatten(3).type_as(x)


@pytest.mark.parametrize(
    ("code", "pairs"),
    [
        (lambda g: halves(g.x, *tables(g)), "neighbours_to_halves"),
        (lambda g: turned(g.x, g.turns), "neighbours_by_half"),
    ],
)
def test_what_turns(code, pairs):
    given = Given()
    made = code(given)
    node = made._node
    assert (node.kind, node.what, node.width) == ("rotary", (8, 8, pairs, False), 32)
    of_tables = (given.cos, given.sin) if pairs == "neighbours_to_halves" else ()
    assert node.inputs == (given.x._node, *([x._node for x in of_tables] or given.turns.tables()))
    assert made.shape == given.x.shape


def test_complex_numbers_of_16_bits():
    """Their products are in float32."""
    given = Given(torch.bfloat16)
    assert turned(given.x, given.turns)._node.what == (8, 8, "neighbours_by_half", True)
    with pytest.raises(NotPlain):
        halves(given.x.float(), *tables(given))


@pytest.mark.parametrize(
    "code",
    [
        lambda g: halves(g.x, *tables(g, 2)),
        lambda g: halves(g.x, g.cos.unsqueeze(1), g.sin.unsqueeze(1)),
        lambda g: halves(-g.x, *tables(g)),
        lambda g: halves(g.x[..., :4], *tables(g)),
        lambda g: g.x[..., 0::2] * tables(g)[0] - g.x[..., 0::2] * tables(g)[1],
        lambda g: g.x[..., 1::2] * tables(g)[0] - g.x[..., 0::2] * tables(g)[1],
        lambda g: g.x[..., 0::2] * tables(g)[0] + g.x[..., 1::2] * tables(g)[1],
        lambda g: g.x[..., 0::2] * tables(g)[0] - g.y[..., 1::2] * tables(g)[1],
        lambda g: g.cos[..., : g.sin.shape[-1] // 2],
        lambda g: g.cos[..., : g.cos.shape[-1]],
        lambda g: g.cos[..., g.cos.shape[-1] // 2 :],
        lambda g: tables(g)[0].unsqueeze(1),
        lambda g: turned(g.x.transpose(1, 2), g.turns),
        lambda g: turned(g.x, g.turns.unsqueeze(1)),
        lambda g: torch.view_as_real(as_complex(g.x)),
        lambda g: as_complex(g.x) * as_complex(g.y),
        lambda g: as_complex(g.x) * g.turns.unsqueeze(1) * g.turns.unsqueeze(1),
        lambda g: torch.view_as_real(as_complex(g.x) * g.turns.unsqueeze(1)).flatten(2),
        lambda g: g.x.reshape(*g.x.shape[:-1], -1, 4),
        lambda g: g.x.reshape(*g.x.shape[:-1], 2, -1),
        lambda g: g.turns.to(torch.device("meta")),
    ],
)
def test_what_does_not(code):
    given = Given()
    before = len(given.graph.nodes)
    with pytest.raises((NotPlain, TypeError)):
        code(given)
    assert not any(x.kind == "rotary" for x in given.graph.nodes[before:])


def test_results_along_another_axis():
    given = Given()
    results = [halves(given.x, *tables(given)) for _ in range(2)]
    with pytest.raises(NotPlain):
        torch.cat(results)


def keys(g, product, order=(0, 1), sizes=(6, 2)):
    """6 numbers of each head of a product, and behind them those that all heads share."""
    first, _ = torch.split(product, [6, 4], dim=-1)
    made = product.new_empty(*product.shape[:-1], 8)
    parts = first, g.key.expand(-1, product.shape[1], -1, -1)
    for i in order:
        begin = (0, sizes[0])[i]
        made[..., begin : begin + sizes[i]].copy_(parts[i])
    return made


def test_keys_of_all_positions():
    given = Given()
    product = given.product()
    entries, key, value = entries_of(keys(given, product), torch.split(product, [6, 4], dim=-1)[1])
    assert entries is given.graph.updates[0]
    assert entries.is_attended
    assert (key._node.kind, key._node.what, key.shape[1:2]) == ("join", (6, 2), (4,))
    columns, shared = key._node.inputs
    assert (columns.what, columns.inputs[0].kind, shared) == ((0, 6, 10), "linear", entries.values._node)
    assert columns.inputs[0].inputs == (entries.keys._node,)
    assert value._node.what == (6, 10, 10)


@pytest.mark.parametrize(
    "code",
    [
        lambda g, x: keys(g, x, order=(1, 0)).new,
        lambda g, x: keys(g, x, order=(0,)).new,
        lambda g, x: keys(g, x, order=(0, 1, 1)).new,
        lambda g, x: keys(g, x, sizes=(5, 2)),
        lambda g, x: keys(g, x, sizes=(6, 1)),
        lambda g, x: x.new_empty(*x.shape[:-1], 9)[..., :6].copy_(g.key),
        lambda g, x: x.new_empty(*x.shape[:-1], 8)[..., ::2],
        lambda g, x: x.new_empty(*x.shape[:-2], 8),
        lambda g, x: x.new_empty(*g.x.shape[:-1], 8),
        lambda g, x: g.key.expand(-1, 4, -1, 2),
        lambda g, x: g.key.expand(-1, -1, -1, -1),
        lambda g, x: x.expand(-1, 4, -1, -1),  # more than one head
        lambda g, x: g.key.expand(-1, 4, -1, -1).shape,
        lambda g, x: torch.chunk(x, 2, dim=-1),
        lambda g, x: x + x,
        lambda g, x: x * 2,
        lambda g, x: torch.relu(x),
        lambda g, x: g.product(g.with_bias),  # which may change
        lambda g, x: g.graph.call(torch.nn.ReLU(), (g.latent,), {}),
        lambda g, x: entries_of(x, g.x),
        lambda g, x: entries_of(g.key.expand(-1, 4, -1, -1), x),
        lambda g, x: entries_of(x, g.others[0].expand(-1, 4, -1, -1)),
        lambda g, x: (entries_of(x, x), entries_of(x, x)),
    ],
)
def test_other_code(code):
    given = Given()
    with pytest.raises((NotPlain, TypeError)):
        code(given, given.product())


def factors(x):
    return (1 + 0.5 * torch.log(1 + torch.floor(x / 4)))[:, None, :, None]


def test_factors_of_positions():
    given = Given()
    positions = Input(None).value(given.graph)
    node = (given.x * factors(positions).to(torch.float32))._node
    assert (node.kind, node.inputs[0], node.width) == ("weigh", given.x._node, 32)
    value, node = torch.arange(10).view(2, 5), node.inputs[1]
    functions = []
    while node.kind == "torch":
        functions.insert(0, node.what)
        (node,) = node.inputs
    assert node is positions.node
    expected = factors(value)
    for function in functions:
        value = function(value)
    assert value.equal(expected.squeeze(1))


@pytest.mark.parametrize(
    "code",
    [
        lambda x, p: x * factors(p),  # of another type, perhaps
        lambda x, p: x * factors(p).to(torch.float64),
        lambda x, p: x * p.to(torch.float32),
        lambda x, p: x.transpose(1, 2) * factors(p).to(torch.float32),
        lambda x, p: x * (factors(p).to(torch.float32) * 2).to("cpu"),
        lambda x, p: x * (factors(p).to(torch.float32) * 2),
        lambda x, p: x + factors(p).to(torch.float32),
        lambda x, p: factors(factors(p)),
        lambda x, p: p[:, None],
        lambda x, p: p + p,
        lambda x, p: p / x,
        lambda x, p: torch.exp(p),
        lambda x, p: 1 if p else 2,
    ],
)
def test_other_factors(code):
    given = Given()
    with pytest.raises((NotPlain, TypeError, AttributeError)):
        code(given.x, Input(None).value(given.graph))


def test_numbers_of_heads():
    given = Given()
    x, numbers = given.x.transpose(1, 2), given.value(given.x._node.sizes, 4)
    node = (x * torch.sigmoid(numbers).unsqueeze(-1))._node
    assert (node.kind, node.what, node.width) == ("multiply_heads", (8,), 32)
    assert node.inputs[1].inputs == (numbers._node,)
    for code in (
        lambda: given.x * numbers.unsqueeze(-1),  # heads are first
        lambda: x * given.value(x._node.sizes, 5).unsqueeze(-1),
        lambda: x * given.value((Size(), Size()), 4).unsqueeze(-1),
        lambda: x * x.unsqueeze(-1),
        lambda: numbers.unsqueeze(-1) * 2,
        lambda: x + numbers.unsqueeze(-1),
    ):
        with pytest.raises((NotPlain, TypeError, AttributeError)):
            code()
