"""Results in float64, and the errors measured against them."""

from __future__ import annotations

import numpy as np
import pytest

from ..cases import operations as cases
from ..truth import operations as truth

SMALL = [
    cases.gemm(3, 5, 7),
    cases.softmax(4, 9),
    cases.attention(6),
    cases.attention(6, causal=True),
    cases.attention(8, mask="bool"),
    cases.attention(8, batch=3, mask="ragged"),
    cases.attention(6, mask="float"),
    cases.attention(1, 10, batch=2),
    cases.softmax(4, 9, mask=True),
    cases.attention(6, heads=4, kv_heads=2, dim=5),
    cases.attention(8, mask="dense"),
    cases.attention(9, mask="bits"),
    cases.attention(9, window=(3, 2)),
    cases.attention(9, causal=True, window=(3, 0)),
    cases.attention(9, causal=True, option="alibi"),
    cases.attention(40, option="t5"),
    cases.attention(9, option="softcap"),
]


@pytest.mark.parametrize("case", SMALL, ids=lambda case: f"{case.op} {case.label}")
def test_truth_agrees_with_float32_and_sees_a_wrong_element(case):
    given = truth.inputs(case)
    exact = truth.Truth(case, given)
    result = np.asarray(exact.result, np.float32)
    assert exact.error(result) <= 1.01  # rounding alone
    index = tuple(np.argwhere(np.isfinite(exact.scale))[-1])  # not padding
    for wrong in (result[index] + 0.01, np.nan):
        broken = result.copy()
        broken[index] = wrong
        assert not exact.error(broken) <= case.tolerance


def test_masked_keys_have_no_influence_on_the_truth():
    case = cases.attention(8, mask="bool")
    given = truth.inputs(case)
    before = truth.Truth(case, given).result
    given["v"][:, :, cases.padded(8) :] = 100
    assert np.array_equal(before, truth.Truth(case, given).result)
    causal = cases.attention(6, causal=True)
    given = truth.inputs(causal)
    assert np.allclose(truth.Truth(causal, given).result[:, :, 0], given["v"][:, :, 0])
    window = cases.attention(9, window=(0, 0))
    given = truth.inputs(window)
    assert np.allclose(truth.Truth(window, given).result, given["v"])


def test_truth_of_grouped_heads_is_that_of_repeated_ones():
    grouped, all_heads = cases.attention(6, kv_heads=2), cases.attention(6)
    given = truth.inputs(grouped)
    repeated = {**given, **{name: given[name].repeat(4, axis=1) for name in "kv"}}
    assert np.array_equal(truth.Truth(grouped, given).result, truth.Truth(all_heads, repeated).result)


def test_buckets_are_those_of_t5():
    """Eight single distances either way, then eight that grow by the eighth root of 16 = 128 / 8."""
    distances = np.array([0, -1, -7, -8, -11, -12, -15, -16, -127, -128, -5000, 1, 7, 8, 31, 32, 5000])
    wanted = [0, 1, 7, 8, 8, 9, 9, 10, 15, 15, 15, 17, 23, 24, 27, 28, 31]
    assert truth.t5_buckets(distances).tolist() == wanted


def test_long_cases_are_checked_in_some_rows_and_for_nan_in_all():
    assert len(truth.checked_rows(cases.attention(2048))) == 2048
    case = cases.attention(2049, heads=1, dim=2)
    rows = truth.checked_rows(case)
    assert rows[0] == 0
    assert rows[-1] == 2048
    assert 256 <= len(rows) <= 258
    exact = truth.Truth(case, truth.inputs(case))
    result = np.zeros(truth.output_shape(case), np.float32)
    result[:, :, rows] = exact.result
    assert exact.error(result) <= 1.01
    result[0, 0, next(row for row in range(2049) if row not in rows)] = np.nan
    assert not exact.error(result) <= case.tolerance
