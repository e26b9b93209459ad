"""Shared by tests of functions that carry a state from call to call."""

import numpy as np
from half import bits

RNG = np.random.default_rng(0)
LENGTHS = [1, 2, 15, 64, 65, 150]


def normal(*shape):
    return RNG.standard_normal(shape, np.float32)


def same_bits(a, b):
    np.testing.assert_array_equal(bits(a), bits(b))
