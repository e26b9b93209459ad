"""_core.are_there(), by which a plan of headlane.torch knows that its module is what it was."""

import pytest
from headlane import _core


class Some:
    attribute = object()


HERE, ABSENT = {"name": Some}, {}
ENTRIES = {
    "dict": (HERE, "name", Some),
    "nothing in a dict": (ABSENT, "name", ABSENT),
    "class": (vars(Some), "attribute", Some.attribute),
    "nothing in a class": ((there := vars(Some)), "name", there),
    "object": (Some(), "attribute", Some.attribute),
    "nothing in an object": ((some := Some()), "name", some),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_are_there(name):
    there, key, value = ENTRIES[name]
    others = [(there, key, None), (there, "other", value)]
    if "nothing" in name:
        others = [(there, key, None), (there, "name", dict(there) if isinstance(there, dict) else object())]
    assert _core.are_there([there, key, value, HERE, "name", Some])
    for other in others:
        assert not _core.are_there([HERE, "name", Some, *other])


def test_errors():
    assert _core.are_there([])
    with pytest.raises(TypeError, match="unhashable"):
        _core.are_there([HERE, [], Some])
    with pytest.raises(TypeError):
        _core.are_there(HERE)
