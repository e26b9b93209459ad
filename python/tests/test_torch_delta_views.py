"""headlane.torch: what is around linear attention in its code: rows of heads, columns, masks, lengths."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from delta_cases import CHANNELS, HEADS, VALUE_DIM, DeltaGiven, refused  # noqa: E402
from headlane.torch._arguments import Input  # noqa: E402
from headlane.torch._graph import Graph  # noqa: E402
from headlane.torch._nodes import Mask, NotPlain  # noqa: E402

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def flat(g, dim=VALUE_DIM):
    return g.values.reshape(-1, dim)


def test_flat_heads():
    """[rows, head_dim] of heads, and what these are again."""
    given = DeltaGiven()
    whole = given.value(HEADS * VALUE_DIM)
    for x in (flat(given), whole.view(-1, VALUE_DIM), whole.view(-1, HEADS * VALUE_DIM)):
        assert x.is_flat
        assert x.reshape(*given.sizes, HEADS, VALUE_DIM).shape == given.values.shape
        assert x.reshape(*given.sizes, -1).shape == whole.shape
        assert not x.reshape(*given.sizes, -1).is_flat
    assert whole.view(-1, HEADS * VALUE_DIM).view(-1, VALUE_DIM).head_dim == VALUE_DIM


@pytest.mark.parametrize(
    "code",
    [
        lambda g: flat(g, -1),
        lambda g: flat(g, 0),
        lambda g: flat(g, -VALUE_DIM),
        lambda g: flat(g, VALUE_DIM / 1),
        lambda g: flat(g, VALUE_DIM - 1),
        lambda g: flat(g, VALUE_DIM // 2),
        lambda g: flat(g, 2 * VALUE_DIM),
        lambda g: flat(g, HEADS * VALUE_DIM),
        lambda g: g.values.view(g.sizes[0], VALUE_DIM),
        lambda g: g.values.view(2, VALUE_DIM),
        lambda g: g.values.transpose(1, 2).reshape(-1, VALUE_DIM),
        lambda g: g.value(None).view(-1, VALUE_DIM),
        lambda g: g.mixed.view(-1, 5),
        lambda g: flat(g).shape,
        lambda g: flat(g) * flat(g),
        lambda g: flat(g) + flat(g),
        lambda g: flat(g).sigmoid(),
        lambda g: flat(g) * g.mask[:, :, None],
        lambda g: flat(g) * g.beta.unsqueeze(-1),
        lambda g: g.graph.call(torch.nn.ReLU(), (flat(g),), {}),
        lambda g: torch.cat((flat(g), flat(g)), dim=-1),
        lambda g: torch.cat((g.values, flat(g)), dim=-1),
        lambda g: torch.cat((flat(g), g.values), dim=-1),
        lambda g: flat(g).of_tokens(),
        lambda g: flat(g).split(3, dim=-1),
        lambda g: flat(g).chunk(2, dim=-1),
        lambda g: g.mixed.of_tokens(),
        lambda g: g.values.transpose(1, 2).of_tokens(),
    ],
)
def test_other_flat_values(code):
    given = DeltaGiven()
    given.mask = Input(None).value(given.graph)
    refused(code, given)


def test_joined_values():
    given = DeltaGiven()
    one, two, three = given.value(5), given.value(7), given.value(20)[..., 3:7]
    node = torch.cat((one, two, three), dim=-1).node
    assert (node.kind, node.what, node.sizes, node.width) == ("join", (12, 4), given.sizes, 16)
    first, last = node.inputs
    assert (first.kind, first.what, first.inputs) == ("join", (5, 7), (one.node, two.node))
    assert (last.kind, last.what) == ("columns", (3, 7, 0))
    assert torch.cat([one], dim=-1).node is one.node


@pytest.mark.parametrize(
    "code",
    [
        lambda g, x: torch.cat((x, x)),
        lambda g, x: torch.cat((x, x), dim=1),
        lambda g, x: torch.cat((x, x), -1),
        lambda g, x: torch.cat((x, x, x), dim=2),
        lambda g, x: torch.cat((x, g.values), dim=-1),
        lambda g, x: torch.cat((g.values, x), dim=-1),
        lambda g, x: torch.cat((x, g.value(None)), dim=-1),
        lambda g, x: torch.cat((g.value(None), x), dim=-1),
        lambda g, x: torch.cat((x, DeltaGiven().mixed), dim=-1),
        lambda g, x: torch.cat((x, x, torch.ones(1)), dim=-1),
        lambda g, x: x.joined(x, is_repeated=True),
    ],
)
def test_other_joined_values(code):
    given = DeltaGiven()
    refused(lambda g: code(g, g.mixed), given)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sigmoid(dtype):
    given = DeltaGiven(dtype)
    for made in (given.beta.sigmoid(), torch.sigmoid(given.beta)):
        assert (made.node.kind, made.node.inputs, made.shape) == (
            "sigmoid",
            (given.beta.node,),
            given.beta.shape,
        )
    refused(lambda g: g.query.sigmoid(), given)


def mask_of(given):
    return Input(None).value(given.graph)


@pytest.mark.parametrize("dtype", DTYPES)
def test_masks(dtype):
    """Of integers, which become the type that they multiply; all others are refused by the plan."""
    given = DeltaGiven(dtype)
    mask = mask_of(given)
    made = (given.mixed * mask[:, :, None]).to(dtype)
    node = made.node
    assert (mask[:, :, None] * given.mixed).node.kind == "weigh"
    assert (node.kind, node.what, node.sizes, node.width) == ("weigh", (), given.sizes, CHANNELS)
    x, factors = node.inputs
    assert (x, factors.kind, factors.inputs) == (given.mixed.node, "torch", (mask.node,))
    numbers = torch.tensor([[0, 1, 1], [0, 0, 3]])
    for kind in (torch.int64, torch.int32, torch.uint8, torch.bool):
        got = factors.what(numbers.to(kind))
        assert got.dtype is dtype
        assert got.equal(torch.ones(2, 3, 1, dtype=dtype) * numbers.to(kind)[:, :, None])
    for kind in (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.complex64):
        assert factors.what(numbers.to(kind)) is NotImplemented
    for other in (numbers[0], numbers[0, 0], numbers[:, :, None], numbers[:, None, None]):
        assert factors.what(other) is NotImplemented


@pytest.mark.parametrize(
    "code",
    [
        lambda x, m: x * m,
        lambda x, m: x * m[:, None],
        lambda x, m: x * m[:, None, :, None],
        lambda x, m: x * m[:, :, None][:, :, None],
        lambda x, m: x * m[:, :, None][:, None, :, None],
        lambda x, m: x * m[:, None, :, None][:, :, None],
        lambda x, m: x * m[:, :, None, None],
        lambda x, m: x * m[..., None],
        lambda x, m: x * m[:, 1:, None],
        lambda x, m: x * m[1:, :, None],
        lambda x, m: x * (m + 1)[:, :, None],
        lambda x, m: x * m.to(torch.int64)[:, :, None],
        lambda x, m: x * (m[:, :, None] + 1),
        lambda x, m: x * (m[:, :, None] * 2),
        lambda x, m: x * (m[:, :, None] / 2),
        lambda x, m: x * m[:, :, None].to(torch.float32),
        lambda x, m: x * torch.log(m[:, :, None]),
        lambda x, m: x + m[:, :, None],
        lambda x, m: x.view(-1, CHANNELS) * m[:, :, None],
        lambda x, m: x.view(*x.shape[:2], -1, 8) * m[:, :, None],
        lambda x, m: x.view(*x.shape[:2], -1, 8).transpose(1, 2) * m[:, :, None],
        lambda x, m: (x * m[:, :, None]).to(torch.float64),
    ],
)
def test_other_masks(code):
    given = DeltaGiven()
    mask, before = mask_of(given), len(given.graph.nodes)
    with pytest.raises((NotPlain, TypeError)):
        code(given.mixed, mask)
    assert "weigh" not in [x.kind for x in given.graph.nodes[before:-1]]


def test_masks_of_rows_are_none_of_attention():
    mask = mask_of(DeltaGiven())
    assert isinstance(mask, Mask)
    assert not isinstance(mask[:, :, None], Mask)
    assert not hasattr(mask[:, :, None], "node")


def test_lengths():
    """That of the first input with three axes says whether it is 1, and the graph that it was asked."""
    for is_single in (False, True):
        graph = Graph(torch.float32, is_single)
        vector, first, second = (Input(axes).value(graph) for axes in (2, 3, 3))
        length = first.shape[1]
        assert length == length
        assert length is not second.shape[1]
        assert not graph.asks_if_single
        for other in (0, 2, 5, 1.0, True, None, "1", second.shape[1], first.shape[0]):
            for ask in (lambda: length == other, lambda: length != other):  # noqa: B023
                with pytest.raises(NotPlain):
                    ask()
        with pytest.raises(NotPlain):
            assert length
        for ask in (lambda: length == -length, lambda: -length == -1, lambda: bool(-length)):  # noqa: B023
            with pytest.raises(NotPlain):
                ask()
        for size in (first.shape[0], second.shape[1], *vector.node.sizes):
            with pytest.raises(NotPlain):
                assert size == 1
            with pytest.raises(TypeError):
                assert -size
        for ask in (lambda: length > 1, lambda: length + 1, lambda: range(length)):  # noqa: B023
            with pytest.raises(TypeError):
                ask()
        assert hash(length) == object.__hash__(length)
        assert not graph.asks_if_single
        assert (length == 1) is is_single
        assert graph.asks_if_single
        graph.asks_if_single = False
        assert (1 != length) is not is_single
        assert graph.asks_if_single
