"""Exceptions of the caller's own objects reach the caller as they are, signals too."""

import headlane
import numpy as np
import pytest

X = np.ones((2, 3, 4), np.float32)


class Own(BaseException):
    """As KeyboardInterrupt: no Exception."""


def raising(kind):
    """An object whose every use as an argument raises this exception."""

    def fail(*_, **__):
        raise kind("own")

    names = ("__index__", "__float__", "__iter__", "__array__", "__dlpack__")
    return type("Raising", (), {**dict.fromkeys(names, fail), "__dlpack_device__": lambda _: (1, 0)})()


def generator(kind):
    yield 0
    raise kind("own")


class Part(list):
    def __iter__(self):
        raise self[0]


def cache():
    keys = headlane.KvCache(2, 4)
    keys.append(keys.add(), X, X)
    return keys


def attend(**options):
    return headlane.scaled_dot_product_attention(X, X, X, **options)


CALLS = {
    "integer": lambda kind: cache().length(raising(kind)),
    "number": lambda kind: headlane.softmax(X, scale=raising(kind)),
    "array": lambda kind: headlane.relu(raising(kind)),
    "out": lambda kind: headlane.relu(X, out=raising(kind)),
    "integers": lambda kind: headlane.softmax(X, lengths=raising(kind)),
    "sequences": lambda kind: headlane.attention_over_cache(X[None], cache(), raising(kind)),
    "generator of sequences": lambda kind: headlane.attention_over_cache(X[None], cache(), generator(kind)),
    "append": lambda kind: cache().append(generator(kind), X[None], X[None]),
    "window": lambda kind: attend(window=generator(kind)),
    "parts": lambda kind: headlane.merge(raising(kind)),
    "part": lambda kind: headlane.merge([Part([kind("own")])]),
}


@pytest.mark.parametrize("kind", [KeyError, RuntimeError, KeyboardInterrupt, Own])
@pytest.mark.parametrize("name", CALLS)
def test_unchanged(name, kind):
    with pytest.raises(kind) as caught:
        CALLS[name](kind)
    assert type(caught.value) is kind
    assert caught.value.args == ("own",)


def test_an_error_within_a_generator_is_no_wrong_argument():
    with pytest.raises(TypeError, match="^own$"):
        CALLS["generator of sequences"](TypeError)


def test_attributes():
    class Device:
        @property
        def dtype(self):
            raise Own

    with pytest.raises(Own):
        headlane.relu(Device())
