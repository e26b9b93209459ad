"""The caller's floating-point state changes no bit: here rounding is upward, as after fesetround()."""

import contextlib
import ctypes
import platform

import calls
import headlane
import numpy as np
import pytest
from headlane import _core

UPWARD = {"x86_64": 0x800, "aarch64": 0x400000}.get(platform.machine())
pytestmark = pytest.mark.skipif(UPWARD is None, reason="the value of FE_UPWARD is not known")


@contextlib.contextmanager
def rounding_upward():
    libm = ctypes.CDLL("libm.so.6")
    assert libm.fesetround(UPWARD) == 0
    try:
        assert np.float32(1) + np.float32(2**-30) > 1
        yield
    finally:
        libm.fesetround(0)


def arrays(x):
    if isinstance(x, tuple | list):
        return [array for each in x for array in arrays(each)]
    return [x] if isinstance(x, np.ndarray) else []


def require_same(compute):
    expected = [x.tobytes() for x in arrays(compute())]
    with rounding_upward():
        made = arrays(compute())
    assert expected
    assert [x.tobytes() for x in made] == expected


RETURNING_ARRAYS = [
    name for name, (function, arguments) in calls.CALLS.items() if arrays(function(**arguments))
]


@pytest.mark.parametrize("name", RETURNING_ARRAYS)
def test_calls(name):
    """With options that are not exact in float32."""
    function, arguments = calls.CALLS[name]
    options = {key: 0.7 * value if type(value) is float else value for key, value in arguments.items()}
    require_same(lambda: function(**options))


def matrix(rows, columns):
    return headlane.PackedMatrix(calls.normal(rows, columns))


@pytest.mark.parametrize("tokens", [1, 5])
def test_experts(tokens):
    experts = _core.Experts([matrix(8, 12)] * 2, [matrix(8, 12)] * 2, [matrix(12, 8)] * 2, "silu", "float32")
    x, factors = calls.normal(tokens, 8), calls.normal(tokens, 2)
    require_same(lambda: experts.forward(x, np.array([[0, 1]] * tokens), factors, 1))


@pytest.mark.parametrize(
    "made_by", [lambda p: p.scale(0, 0.7), lambda p: p.add(0, 1), lambda p: p.multiply(0, 1)]
)
def test_row_program(made_by):
    program = _core.RowProgram(2)
    program.add_output(made_by(program))
    values = [calls.normal(2, 3, 8), calls.normal(2, 3, 8)]
    require_same(lambda: program.run(values, [], [], [], 1))
