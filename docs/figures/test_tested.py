"""What is read from the log of ctest, and how a page is filled in."""

from __future__ import annotations

import pytest

from . import page, tested

LOG = """
1/3 Test: gemm.avx512
gemm                       1738274 comparisons, worst error / bound 0.975
2/3 Test: gemm.avx2
gemm                        863560 comparisons, worst error / bound 0.816
../../tests/gemm/test_gemm_exact.cpp:94: MESSAGE: exact gemm, isa avx2: 12000 shapes, 15445690 elements, 0 differ
3/3 Test: rest
../../tests/x.cpp:44: MESSAGE: exp, isa avx512: 4307891 floats, at most 0.822081 ULP (at -16.9322)
../../tests/x.cpp:37: MESSAGE: gelu, isa avx512: at most 7.39103 ULP, 0.739103 of the limit (at -13.1078)
../../tests/x.cpp:35: MESSAGE: cache, order: 19 comparisons by bits, 0 differ
../../tests/x.cpp:35: MESSAGE: 30 comparisons by bits
../../tests/x.cpp:50: MESSAGE: softmax, isa avx2: 66048 guarded cases
../../tests/x.cpp:240: MESSAGE: 300 illegal calls
../../tests/x.cpp:53: MESSAGE: 2000 cases, 667 of them ragged
"""


def test_the_log():
    found = tested.Tested("a CPU", 2, "GCC 12", "0.2.0", "2026-01-01")
    tested.read_log(LOG, found)
    assert (found.tests, found.isas) == (3, ["avx2", "avx512"])
    assert found.bounds == {"gemm": tested.Counted(1738274 + 863560, 0.975)}
    assert found.ulp == {"exp": tested.Counted(4307891, 0.822081), "gelu": tested.Counted(0, 7.39103)}
    assert found.shares == {"gelu": tested.Counted(0, 0.739103)}
    counts = {kind: counted.count for kind, counted in found.counts.items()}
    assert counts == {"exact": 15445690, "bits": 49, "guarded": 66048, "illegal": 300, "combined": 2000}


def test_a_log_without_one_of_the_kinds():
    with pytest.raises(ValueError, match="illegal"):
        tested.read_log(LOG.replace("illegal calls", "calls"), tested.Tested("", 1, "", "", ""))


def test_a_page_is_filled_in(tmp_path):
    file = tmp_path / "page.md"
    file.write_text("{{first}} and {{second}}", encoding="utf-8")
    with pytest.raises(page.BadPage, match="second"):
        page.fill(file, {"first": "1"})
    with pytest.raises(page.BadPage, match="third"):
        page.fill(file, {"first": "1", "second": "2", "third": "3"})
    page.fill(file, {"first": "1", "second": "2"})
    assert file.read_text(encoding="utf-8") == "1 and 2"
