"""The worked examples: their inputs are found, and one call agrees with the steps."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("headlane")

from . import worked


@pytest.mark.parametrize(("make", "shape"), [(worked.example_a, (3, 4)), (worked.example_b, (4, 3))])
def test_examples(make, shape):
    example = make()
    assert example.x.shape == shape
    np.testing.assert_allclose(example.weights.sum(axis=-1), 1, rtol=1e-6)
    np.testing.assert_allclose(example.one_call, example.out, rtol=2e-6)
    np.testing.assert_allclose(example.terms(0).sum(axis=0), example.out[0], rtol=1e-6)
