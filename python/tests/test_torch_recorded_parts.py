"""headlane.torch: parts of heads in recorded code, and what is not recorded of them."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
from headlane.torch._code import drop_unread_columns  # noqa: E402
from headlane.torch._nodes import NotPlain  # noqa: E402
from recorded_cases import Given  # noqa: E402


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
