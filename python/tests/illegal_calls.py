"""Illegal calls, as the test_errors_*.py have them in tables: name -> (call, exception, message).

Each call takes an array `out`, which it may pass as the output; the message is a regular expression.
"""

import re

import headlane
import numpy as np
import pytest

SDPA = headlane.scaled_dot_product_attention
X = np.random.default_rng(0).standard_normal((4, 8), np.float32)
X4 = np.ones((2, 6, 4, 8), np.float32)
PACKED = headlane.PackedMatrix(X)
MISALIGNED = np.zeros(4 * 8 * 4 + 1, np.uint8)[1:].view(np.float32).reshape(4, 8)


def new_out(*shape):
    return np.full(shape or (4, 8), np.nan, np.float32)


def check_refused(call, exception, message):
    """The call raises the exception with the message, which names a function, and nothing is
    written.
    """
    out, before = new_out(), X4.copy()
    with pytest.raises(exception) as caught:
        call(out)
    text = str(caught.value)
    assert re.search(message, text), text
    assert re.search("|".join(headlane.__all__), text), text
    assert np.isnan(out).all(), "out was written"
    np.testing.assert_array_equal(X4, before)
