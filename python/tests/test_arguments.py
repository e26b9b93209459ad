"""Arguments of wrong types: for every scalar parameter of every public callable, an error that
names function and argument.
"""

import inspect

import calls
import headlane
import numpy as np
import pytest

# Parameters that are never scalars: arrays, containers of arrays, and objects of the package.
ARRAYS = {
    *(
        "x",
        "a",
        "b",
        "packed",
        "gate",
        "up",
        "bias",
        "gate_bias",
        "up_bias",
        "residual",
        "weight",
        "mask",
        "out",
    ),
    *(
        "query",
        "key",
        "value",
        "attn_mask",
        "alibi_slopes",
        "sinks",
        "mask_bits",
        "relative_bias",
        "frequencies",
    ),
    *("k", "v", "memory", "ids", "lengths", "key_lengths", "query_lengths", "positions", "query_starts"),
    *("key_starts", "numbers", "scales", "columns", "bytes"),
}
OBJECTS = {"cache", "memory_cache", "memory_sequences", "cross", "parts", "state", "self", "options", "team"}
KINDS = {
    int: (1.0, "1", [1], np.float32(2)),
    float: ("1", [1.0], 1j),
    bool: (1, 0.0, "yes", None, np.int64(1)),
    str: (1, b"relu", ["relu"]),
}
SCALARS = [
    (name, parameter)
    for name, (_, arguments) in calls.CALLS.items()
    for parameter in (*arguments, "num_threads")
    if parameter not in ARRAYS | OBJECTS
    and not isinstance(arguments.get(parameter), np.ndarray)  # beta is a number, or an array
    and (parameter != "num_threads" or "num_threads" in calls.signature_of(name).parameters)
]


def test_every_callable_is_called():
    assert set(calls.CALLS) == calls.public_callables()
    for name, (function, arguments) in calls.CALLS.items():
        function(**arguments)
        parameters = calls.signature_of(name).parameters
        options = inspect.Parameter.VAR_KEYWORD in {p.kind for p in parameters.values()}
        missing = parameters.keys() - arguments.keys() - {"self", "options", "out", "num_threads", *OBJECTS}
        assert missing <= {"query_starts", "key_starts", "sequences" if "cache" in parameters else None}, name
        assert options or arguments.keys() <= parameters.keys(), name


def wrong_values(name, parameter):
    """Of other types than the parameter takes."""
    right = calls.CALLS[name][1].get(parameter, 1)
    if isinstance(right, (list, tuple)) or (parameter == "causal_offset" and "softmax" not in name):
        return 1.5, "1"  # several, or one
    if parameter == "return_sum" and "norm" in name:
        return 1, 0.0, "yes", None  # an array is where it goes
    none = not (
        parameter in ("num_threads", "value_dim", "num_kv_heads", "max_length", "activation")
        or (parameter == "length" and name == "KvCache.fork")
        or (parameter == "scale" and isinstance(right, float) and right < 1)  # 1 / sqrt(dim)
    )
    return (*KINDS[type(right)], None) if none else KINDS[type(right)]


@pytest.mark.parametrize(("name", "parameter"), SCALARS)
def test_wrong_scalars(name, parameter):
    function, arguments = calls.CALLS[name]
    for value in wrong_values(name, parameter):
        with pytest.raises(TypeError) as caught:
            function(**{**arguments, parameter: value})
        text = str(caught.value)
        assert text.startswith(name + ": "), text
        assert parameter in text, text


@pytest.mark.parametrize(
    ("name", "parameter"), [case for case in SCALARS if case[1] not in ("name", "window")]
)
def test_numpys_scalars_are_as_good(name, parameter):
    function, arguments = calls.CALLS[name]
    right = arguments.get(parameter, 1)
    kinds = {int: np.int64, float: np.float64, bool: np.bool_, str: np.str_, list: np.array}
    if parameter == "return_sum" and "norm" in name:
        return
    function(**{**arguments, parameter: kinds[type(right)](right)})


@pytest.mark.parametrize(("name", "parameter"), [case for case in SCALARS if case[1] == "num_threads"])
def test_threads(name, parameter):
    """0 is the setting of the process, as in C++; there is no number below."""
    function, arguments = calls.CALLS[name]
    function(**{**arguments, parameter: 0})
    for value, words in (
        (-1, "num_threads is -1, the minimum is 0"),
        (2**40, "num_threads is 1099511627776, the most is"),
    ):
        with pytest.raises(ValueError, match=words):
            function(**{**arguments, parameter: value})


def test_numbers_that_do_not_fit():
    x = np.ones((2, 3), np.float32)
    with pytest.raises(
        ValueError, match="softmax: axis is 18446744073709551616, which has more than 64 bits"
    ):
        headlane.softmax(x, 2**64)
    with pytest.raises(ValueError, match=r"softmax: axis is 4294967296, x has shape \[2, 3\]"):
        headlane.softmax(x, 2**32)
    with pytest.raises(ValueError, match=r"softmax: scale is 1e\+39, which is beyond float32"):
        headlane.softmax(x, scale=1e39)
    with pytest.raises(ValueError, match="which is beyond floating-point numbers"):
        headlane.softmax(x, scale=10**400)
    with pytest.raises(ValueError, match="sinusoidal_encoding: length is -1"):
        headlane.sinusoidal_encoding(-1, 8)


@pytest.mark.parametrize("text", ["\ud800", "relu\udfff"])
def test_text_that_is_no_unicode(text):
    for name, parameter in (
        *(case for case in SCALARS if isinstance(calls.CALLS[case[0]][1].get(case[1]), str)),
    ):
        function, arguments = calls.CALLS[name]
        with pytest.raises(ValueError, match=parameter) as caught:
            function(**{**arguments, parameter: text})
        assert not isinstance(caught.value, UnicodeError)
        assert str(caught.value).startswith(name)
    with pytest.raises(ValueError, match="Linear: a name in state is"):
        headlane.Linear({**calls.WEIGHT, text: None})
    with pytest.raises(TypeError, match="Linear: a name in state is 3; wanted: a str"):
        headlane.Linear({**calls.WEIGHT, 3: None})


def use(instance, member, arguments):
    """Reading a property is refused."""
    getattr(instance, member)(*arguments)
    raise AssertionError(member)


@pytest.mark.parametrize(
    "name", [n for n in headlane.__all__ if inspect.isclass(getattr(headlane, n)) and n != "AttentionPlan"]
)
@pytest.mark.filterwarnings("ignore:nanobind:RuntimeWarning")
def test_objects_that_were_not_initialised(name):
    kind = getattr(headlane, name)
    for member in sorted(n for n in dir(kind) if not n.startswith("__")):
        if member in ("add", "state"):
            arguments = []
        elif member.startswith("_"):
            continue
        else:
            arguments = [calls.X] * 3
        empty = kind.__new__(kind)
        with pytest.raises(TypeError):  # also where there are too many arguments
            use(empty, member, arguments)
    with pytest.raises((TypeError, AttributeError)):
        repr(kind.__new__(kind)) if name in ("PackedMatrix", "KvCache") else kind.__new__(kind).__reduce__()
    q = calls.Q
    if name == "PackedMatrix":
        for call in (
            lambda b: headlane.gemm(q[0, 0], b),
            lambda b: headlane.matmul(q, b),
            lambda b: headlane.linear(q, b),
            lambda b: headlane.gemm_gated(q, b, b),
        ):
            with pytest.raises(TypeError, match=r"(gemm|matmul|linear|gemm_gated): \w+ was not initialised"):
                call(kind.__new__(kind))
    if name == "KvCache":
        empty = kind.__new__(kind)
        for call in (
            lambda: headlane.attention_over_cache(q, empty, [0, 1]),
            lambda: headlane.plan_attention(q, empty, [0, 1]),
            lambda: calls.attention().remember(calls.X, empty, [0, 1]),
            lambda: calls.attention()(calls.X, cache=empty, sequences=[0, 1]),
        ):
            with pytest.raises(TypeError, match="cache was not initialised"):
                call()


def test_signatures():
    for name in headlane.__all__:
        one = getattr(headlane, name)
        inspect.signature(one)
        assert inspect.getdoc(one)
        if inspect.isclass(one):
            for member, function in vars(one).items():
                if inspect.isfunction(function):
                    inspect.signature(function)
                    assert member.startswith("_") or inspect.getdoc(function), member
