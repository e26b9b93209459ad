"""headlane.torch: what the code of a module may be to turn heads by their positions, and what it may not."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import headlane.torch  # noqa: E402, F401
from headlane.torch._graph import Graph  # noqa: E402
from headlane.torch._nodes import Node, NotPlain, Size  # noqa: E402
from headlane.torch._tables import WideMask  # noqa: E402
from headlane.torch._values import Value  # noqa: E402

HALVES, NEIGHBOURS, BY_PAIR = "halves", "neighbours", "neighbours_by_pair"
BY_HALF = "neighbours_by_half"


class Given:
    """Two tensors of 4 heads of 8, and three tables."""

    def __init__(self, dtype=torch.float32):
        self.graph, sizes = Graph(dtype), [Size(), Size()]
        self.x, self.y = (self.heads(self.value(sizes, 32)) for _ in range(2))
        self.cos, self.sin, self.other = (self.value(sizes, None).unsqueeze(1) for _ in range(3))
        self.wide_cos, self.wide_sin = (
            WideMask(self.graph.add(Node("input"))).unsqueeze(1) for _ in range(2)
        )

    def value(self, sizes, width):
        node = self.graph.add(Node("input"))
        node.sizes, node.width = sizes, width
        return Value(self.graph, node)

    @staticmethod
    def heads(x):
        return x.view(*x.shape[:2], -1, 8).transpose(1, 2)


def cat(*parts):
    return torch.cat(parts, dim=-1)


def exchanged(x):
    half = x.shape[-1] // 2
    return cat(-x[..., half:], x[..., :half])


def turned(x, cos, sin):
    return (x * cos) + (exchanged(x) * sin)


def interleaved(x, cos, sin):
    stacked = torch.stack((-x[..., 1::2], x[..., 0::2]), dim=-1)
    return (x * cos) + (stacked.flatten(-2) * sin)


def by_pair(table):
    return table[..., : table.shape[-1] // 2].repeat_interleave(2, dim=-1)


def repeated(table):
    return torch.repeat_interleave(table, 2, 3)


def stacked(*parts):
    return torch.stack(parts, dim=-1).flatten(-2)


def of_first(g, width, rest=None):
    return cat(turned(g.x[..., :width], g.cos, g.sin), g.x[..., width if rest is None else rest :])


@pytest.mark.parametrize(
    ("code", "rotary_dim", "pairs"),
    [
        (lambda g: turned(g.x, g.cos, g.sin), 8, HALVES),
        (lambda g: turned(g.x.float(), g.cos, g.sin).to(dtype=torch.float32), 8, HALVES),
        (lambda g: (g.sin * exchanged(g.x)) + (g.x * g.cos), 8, HALVES),
        (lambda g: g.x * g.cos + cat(g.x[..., 4:], -g.x[..., :4]) * g.sin, 8, "halves_backwards"),
        (lambda g: of_first(g, 4), 4, HALVES),
        (lambda g: of_first(g, 2), 2, HALVES),
        (lambda g: of_first(g, g.cos.shape[-1]), 0, HALVES),
        (lambda g: of_first(g, g.sin.shape[-1]), 0, HALVES),
        (lambda g: interleaved(g.x, g.cos, g.sin), 8, NEIGHBOURS),
        (lambda g: interleaved(g.x, by_pair(g.cos), by_pair(g.sin)), 8, BY_PAIR),
        (lambda g: (stacked(-g.x[..., 1::2], g.x[..., ::2]).float() * g.sin) + g.x * g.cos, 8, NEIGHBOURS),
        (lambda g: cat(interleaved(g.x[..., :4], g.cos, g.sin), g.x[..., 4:]), 4, NEIGHBOURS),
        (lambda g: interleaved(g.x, repeated(g.cos), repeated(g.sin)), 8, BY_HALF),
        (
            lambda g: cat(interleaved(g.x[:, :, :, :4], repeated(g.cos), repeated(g.sin)), g.x[..., 4:]),
            4,
            BY_HALF,
        ),
        (
            lambda g: cat(
                interleaved(g.x[..., : g.cos.shape[-1]], by_pair(g.cos), by_pair(g.sin)),
                g.x[..., by_pair(g.cos).shape[-1] :],
            ),
            0,
            BY_PAIR,
        ),
    ],
)
def test_what_turns(code, rotary_dim, pairs):
    given = Given()
    node = code(given)._node
    assert (node.kind, node.what, node.width) == ("rotary", (8, rotary_dim, pairs, False), 32)
    assert node.inputs == (given.x._node, given.cos.node, given.sin.node)


@pytest.mark.parametrize(
    "code",
    [
        lambda g: (g.x * g.cos) + (g.x * g.sin),
        lambda g: (g.x * g.cos) + (exchanged(g.y) * g.sin),
        lambda g: (g.x * g.cos) + (exchanged(g.x[..., :4]) * g.sin),
        lambda g: (g.x * g.cos) + exchanged(g.x),
        lambda g: exchanged(g.x) * g.cos * g.sin,
        lambda g: cat(-g.x[..., :4], g.x[..., 4:]) * g.sin,
        lambda g: cat(g.x[..., 4:], g.x[..., :4]) * g.sin,
        lambda g: cat(-g.x[..., 4:], -g.x[..., :4]) * g.sin,
        lambda g: cat(g.x[..., :4], -g.x[..., 4:]) * g.sin,
        lambda g: cat(-g.x[..., 2:], g.x[..., :2]) * g.sin,
        lambda g: cat(-g.x[..., 4:], g.y[..., :4]) * g.sin,
        lambda g: torch.cat((-g.x[..., 4:], g.x[..., :4]), dim=1) * g.sin,
        lambda g: exchanged(g.x[..., :5]),
        lambda g: exchanged(g.x[..., 4:]),
        lambda g: g.x[..., 4:] * g.cos,
        lambda g: -g.x[..., :4] * g.cos,
        lambda g: g.x[..., ::3],
        lambda g: g.x[..., 2::2],
        lambda g: g.x[..., :4:2],
        lambda g: stacked(g.x[..., 1::2], g.x[..., ::2]),
        lambda g: stacked(-g.x[..., ::2], g.x[..., 1::2]),
        lambda g: stacked(-g.x[..., 1::2], -g.x[..., ::2]),
        lambda g: stacked((-g.x[..., 1::2]).__neg__(), g.x[..., ::2]),
        lambda g: stacked(-g.x[..., 1::2], g.y[..., ::2]),
        lambda g: stacked(-g.x[..., :4][..., 1::2], g.x[..., ::2]),
        lambda g: stacked(-g.x[..., :5][..., 1::2], g.x[..., :5][..., ::2]),
        lambda g: stacked(-g.x[..., 1::2], g.x[..., ::2], g.x[..., ::2]),
        lambda g: torch.stack((-g.x[..., 1::2], g.x[..., ::2])),
        lambda g: torch.stack((-g.x[..., 1::2], g.x[..., ::2]), dim=-1).flatten(-3),
        lambda g: interleaved(g.x, by_pair(g.cos), g.sin),
        lambda g: turned(g.x, by_pair(g.cos), by_pair(g.sin)),
        lambda g: (g.x * g.cos) + stacked(-g.x[..., 1::2], g.x[..., ::2]),
        lambda g: by_pair(by_pair(g.cos)),
        lambda g: repeated(repeated(g.cos)),
        lambda g: torch.repeat_interleave(g.cos, 2, 2),
        lambda g: turned(g.x, repeated(g.cos), repeated(g.sin)),
        lambda g: g.x[:, :, :4],
        lambda g: g.x[:, :, 1:, :4],
        lambda g: g.cos[..., : g.sin.shape[-1] // 2],
        lambda g: g.cos[..., : g.cos.shape[-1]],
        lambda g: g.cos[..., : g.cos.shape[-1] // 2].repeat_interleave(3, dim=-1),
        lambda g: g.cos[..., : g.cos.shape[-1] // 2].repeat_interleave(2),
        lambda g: g.x[..., 2:4],
        lambda g: g.x[..., :10],
        lambda g: g.x[..., :-4],
        lambda g: g.x[:, :4],
        lambda g: of_first(g, 4, 2),
        lambda g: of_first(g, 4, 6),
        lambda g: of_first(g, 4, g.cos.shape[-1]),
        lambda g: of_first(g, g.other.shape[-1]),
        lambda g: of_first(g, g.cos.shape[-1], g.sin.shape[-1]),
        lambda g: of_first(g, g.cos.shape[-1] // 2),
        lambda g: cat(turned(g.x[..., :4], g.cos, g.sin), g.y[..., 4:]),
        lambda g: cat(turned(g.x[..., :4], g.cos, g.sin), -g.x[..., 4:]),
        lambda g: cat(turned(g.x[..., :4], g.cos, g.sin), g.x[..., :4]),
        lambda g: g.cos.shape[-1] // 4,
    ],
)
def test_what_does_not(code):
    given = Given()
    before = len(given.graph.nodes)
    with pytest.raises(NotPlain):
        code(given)
    assert len(given.graph.nodes) == before


@pytest.mark.parametrize(
    ("code", "is_wide"),
    [
        (lambda g: turned(g.x, g.cos, g.sin), False),
        (lambda g: turned(g.x, g.wide_cos, g.wide_sin).to(torch.bfloat16), True),  # as OLMo 2
        (lambda g: turned(g.x.float(), g.cos, g.sin).to(dtype=torch.bfloat16), True),  # as Cohere
        (lambda g: ((g.x.float() * g.cos) + (exchanged(g.x).float() * g.sin)).to(torch.bfloat16), True),
        (lambda g: interleaved(g.x.float(), g.wide_cos, g.wide_sin).to(torch.bfloat16), True),  # as Ernie 4.5
    ],
)
def test_16_bits_turned_in_float32(code, is_wide):
    given = Given(torch.bfloat16)
    value = code(given)
    assert isinstance(value, Value)
    assert (value._node.kind, value._node.what[-1]) == ("rotary", is_wide)


@pytest.mark.parametrize(
    "code",
    [
        lambda g: turned(g.x, g.wide_cos, g.wide_sin).to(torch.float32),
        lambda g: turned(g.x, g.wide_cos, g.sin),  # products of two types
        lambda g: turned(g.x, g.wide_cos, g.wide_sin).transpose(1, 2),
        lambda g: (g.x.float() * g.cos) + (exchanged(g.x) * g.sin),
        lambda g: cat(turned(g.x.float()[..., :4], g.cos, g.sin), g.x[..., 4:]),
        lambda g: cat(-g.x.float()[..., 4:], g.x[..., :4]),
        lambda g: stacked(-g.x.float()[..., 1::2], g.x[..., ::2]),
        lambda g: (g.x * g.cos).float(),
        lambda g: g.x.transpose(1, 2).view(*g.x.shape[:1], g.x.shape[2], 32).float().type_as(g.x),
    ],
)
def test_16_bits_that_are_not(code):
    given = Given(torch.bfloat16)
    with pytest.raises((NotPlain, AttributeError)):
        code(given)


@pytest.mark.parametrize(
    ("code", "columns"),
    [
        (lambda x: x[..., 8:24], (8, 24)),
        (lambda x: x[..., 8:][..., 8:], (16, 32)),
        (lambda x: x[..., :-8], (0, 24)),
        (lambda x: x.chunk(4, dim=-1)[1], (8, 16)),
        (lambda x: x.split([8, 20, 4], dim=-1)[1], (8, 28)),
        (lambda x: x.chunk(2, dim=-1)[1].split(12, dim=2)[1], (28, 32)),
    ],
)
def test_columns(code, columns):
    given = Given()
    x = Value(given.graph, given.x._node)
    some = code(x)
    assert some.shape[-1] == columns[1] - columns[0]
    node = some.node
    assert (node.kind, node.what, node.inputs) == ("columns", (*columns, 0), (given.x._node,))
    assert code(x).node is node  # computed once


def test_columns_of_heads():
    given = Given()
    parts = given.x.chunk(2, dim=-1)
    assert [x.shape[-1] for x in parts] == [4, 4]
    assert [x.head_dim for x in parts] == [4, 4]
    for number, part in enumerate(parts):
        node = part._own_node()
        columns = 4 * number, 4 * number + 4, 8
        assert (node.kind, node.what, node.inputs) == ("columns", columns, (given.x._node,))
        assert node.width == 16
        assert given.x.split(4, dim=3)[number]._own_node() is node  # computed once
    for code in (lambda x: x.chunk(3, dim=-1), lambda x: x.chunk(2, dim=2), lambda x: x.split(4)):
        with pytest.raises(NotPlain):
            code(given.x)


@pytest.mark.parametrize(
    "code",
    [
        lambda x: x[..., ::2],
        lambda x: x[..., 8:8],
        lambda x: x[..., 0],
        lambda x: x[:, 8:],
        lambda x: x[8:],
        lambda x: x.chunk(5, dim=-1),
        lambda x: x.chunk(2),
        lambda x: x.split([8, 16], dim=-1),
        lambda x: x.split([32, 0], dim=-1),
        lambda x: x.split((8, 24)),
    ],
)
def test_other_parts(code):
    given = Given()
    with pytest.raises(NotPlain):
        code(Value(given.graph, given.x._node))
