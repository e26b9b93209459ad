"""Illegal calls of softmax, activations and the settings of the process."""

import headlane
import numpy as np
import pytest
from illegal_calls import X4, X, check_refused

CASES = {
    "axis": (lambda o: headlane.softmax(X, 2, out=o), ValueError, r"axis is 2, x has shape \[4, 8\]"),
    "no axis": (lambda o: headlane.log_softmax(np.float32(1)), (TypeError, ValueError), "x has"),
    "log": (lambda o: headlane.log_softmax(X, -3, out=o), ValueError, "axis is -3"),
    "relu int": (lambda o: headlane.relu(X.astype(np.int32), out=o), TypeError, "relu: x .*int32"),
    "silu shape": (
        lambda o: headlane.silu(X.T, out=o),
        ValueError,
        r"out has shape \[4, 8\], the result \[8, 4\]",
    ),
    "erf overlaps": (
        lambda o: headlane.erf(X4[0], out=X4[0, :, ::-1]),
        ValueError,
        "erf: activate: out .*overlaps",
    ),
    "gelu": (lambda o: headlane.gelu(X, "fast", out=o), ValueError, "gelu: approximate is 'fast'"),
    "gelu list": (lambda o: headlane.gelu([1.0], "tanh", out=o), TypeError, "gelu: x has type list"),
    "tanh threads": (
        lambda o: headlane.tanh(X, num_threads=-1, out=o),
        ValueError,
        "tanh: num_threads is -1",
    ),
    "too many threads": (
        lambda o: headlane.softmax(X, num_threads=2**40, out=o),
        ValueError,
        "num_threads is 1099511627776, the most is 2147483647",
    ),
    "set_num_threads": (lambda o: headlane.set_num_threads(-1), ValueError, "threads is -1"),
    "set_isa": (lambda o: headlane.set_isa("mmx"), ValueError, "mmx.*portable"),
}


@pytest.mark.parametrize("name", CASES)
def test_refused(name):
    call, exception, message = CASES[name]
    check_refused(call, exception, message)
