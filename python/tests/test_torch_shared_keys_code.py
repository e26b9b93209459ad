"""headlane.torch: what code may do with keys and values that layers share."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
if not hasattr(transformers.cache_utils, "KVSharingDict"):
    pytest.skip("transformers has no dict of keys that are shared", allow_module_level=True)
import headlane.torch  # noqa: E402
import headlane.transformers  # noqa: E402
from headlane.torch._arguments import Input, Shared  # noqa: E402
from headlane.torch._attend import attend  # noqa: E402
from headlane.torch._cached import CacheValue  # noqa: E402
from headlane.torch._nodes import Node, NotPlain  # noqa: E402
from recorded_cases import Given  # noqa: E402
from torch import nn  # noqa: E402
from transformers.cache_utils import KVSharingDict  # noqa: E402


def shared_of(g, sizes):
    return Input(Shared(KVSharingDict, sizes)).value(g.graph)


def updated():
    """With keys and values that two layers of a cache have."""
    given = Given()
    cache = CacheValue(given.graph.add(Node("input")), object, given.graph.updates, given.graph.states)
    given.updated, given.others = (cache.update(given.x, given.y, layer) for layer in range(2))
    return given


def called(g, keys_and_values):
    """A call of attention."""
    return headlane.transformers, g.graph.stand_in(nn.Identity()), *keys_and_values, None, (), {}


def from_cache(g):
    """Keys that are computed from those of the cache."""
    return [x.as_source() for x in g.updated]


def test_keys_that_are_given():
    given = updated()
    shared = shared_of(given, ())
    shared["new"] = given.updated
    node = attend(given.x, *called(given, given.updated))._node
    assert (node.what.shared_as, node.what.read(node.inputs).shared) == ("new", shared._node)
    assert node.what.changes_cache


def test_attention_to_shared_keys():
    given = Given()
    shared = shared_of(given, (("some", (2, 8, 6)),))
    assert isinstance(shared, KVSharingDict)
    keys, values = shared["some"]
    call = called(given, (keys, values))
    made = attend(given.x, *call)
    assert made._node.what.heads == ((None, 8), ((0, 16), 8), ((0, 12), 6))
    assert (made._node.what.entries, made._node.what.is_of_filled_cache) == (("some",), True)
    assert (made._node.width, made.shape[2:]) == (24, (4, 6))
    with pytest.raises(NotPlain):
        attend(given.x, *call)


@pytest.mark.parametrize(
    "code",
    [
        lambda x, g: x["other"],
        lambda x, g: x[0],
        lambda x, g: x.get("some"),
        lambda x, g: x.pop("some"),
        lambda x, g: x.to("cpu"),
        lambda x, g: list(x),
        lambda x, g: dict(x),
        lambda x, g: x.data,
        lambda x, g: x == {},
        lambda x, g: 1 if x else 2,
        lambda x, g: "some" in x,
        lambda x, g: len(x),
        lambda x, g: x.__setitem__("some", x["some"]),  # which no cache has
        lambda x, g: x.__setitem__("new", (g.x, g.x)),
        lambda x, g: x.__setitem__("new", g.updated[::-1]),
        lambda x, g: x.__setitem__("new", (g.updated[0], g.others[1])),
        lambda x, g: x.__setitem__("new", (*g.updated, None)),
        lambda x, g: x.__setitem__("new", [*g.updated]),
        lambda x, g: x.__setitem__("new", g.updated[0]),
        lambda x, g: x.__setitem__(0, g.updated),
        lambda x, g: [x.__setitem__("new", y) for y in (g.updated, g.others)],
        lambda x, g: [x.__setitem__(name, g.updated) for name in ("new", "newer")],
        lambda x, g: (x.__setitem__("new", g.updated), x["new"]),
        lambda x, g: (attend(g.x, *called(g, g.updated)), x.__setitem__("new", g.updated)),
        lambda x, g: (x.__setitem__("new", g.updated), attend(g.x, *called(g, from_cache(g)))),
        lambda x, g: x.update(some=1),
        lambda x, g: x.__delitem__("some"),
        lambda x, g: x["some"][0] + x["some"][1],
        lambda x, g: attend(g.x, *called(g, x["some"][::-1])),
        lambda x, g: attend(g.x, *called(g, (x["some"][0], x["some"][1]))),  # of two reads
    ],
)
def test_other_uses_of_shared_keys(code):
    given = updated()
    with pytest.raises((NotPlain, TypeError, AttributeError)):
        code(shared_of(given, (("some", (2, 8, 8)),)), given)
