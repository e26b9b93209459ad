"""What ./dev peers is made of, without measuring: cases, truth, ratios, tables, the document."""

from __future__ import annotations

import json
import os
import sys

import numpy as np
import pytest

from . import cases, contenders, measure, record, table, truth

EVERY_CASE = [case for op in cases.ALL.values() for case in op]
SMALL = [
    cases.gemm(3, 5, 7),
    cases.softmax(4, 9),
    cases.attention(6),
    cases.attention(6, causal=True),
    cases.attention(8, mask="bool"),
    cases.attention(6, mask="float"),
    cases.attention(1, 10, batch=2),
]


def row(contender: str, seconds: float, isa: str | None = None, limit: float = 0.5) -> dict:
    case = cases.gemm(64, 64, 64)
    return {
        "op": "gemm",
        "case": case.label,
        "shape": case.shape,
        "threads": 1,
        "contender": contender,
        "isa": isa,
        "seconds": seconds,
        "low": 0.9 * seconds,
        "high": 1.1 * seconds,
        "flops": case.flops,
        "limit": {"kind": "fma", "seconds": limit},
        "error": 1.25,
    }


def document() -> dict:
    """headlane takes 1 s, with AVX2 2 s, with a packed b 0.5 s; the peers of its route 3 s and 1.5 s, one with a packed b 0.8 s."""
    who = [
        ("headlane", "avx512", False),
        ("headlane", "avx2", False),
        ("MKL", None, False),
        ("BLIS", None, False),
    ]
    who += [("oneDNN", None, True), ("headlane prepacked", "avx512", True)]
    return {
        "machine": {"limits": [{"isa": "avx512"}]},
        "contenders": [
            {"name": name, "isa": isa, "route": "C++", "prepacked": packed} for name, isa, packed in who
        ],
        "results": [
            row("headlane", 1, "avx512"),
            row("headlane", 2, "avx2"),
            row("MKL", 3),
            row("BLIS", 1.5),
            row("oneDNN", 0.8),
            row("headlane prepacked", 0.5, "avx512"),
        ],
        "failures": [],
    }


def test_labels_are_unique_and_each_operation_has_quick_cases():
    assert len({(case.op, case.label) for case in EVERY_CASE}) == len(EVERY_CASE)
    assert {case.op for case in EVERY_CASE if case.quick} == {"gemm", "softmax", "attention", "decode"}


def test_work_of_a_call():
    assert cases.gemm(2, 3, 4).flops == 48
    assert cases.gemm(2, 3, 4).bytes == 4 * (8 + 12 + 6)
    assert cases.softmax(2, 8).bytes == 128
    assert cases.attention(4).flops == 4 * 8 * 16 * 64
    assert cases.attention(4, causal=True).flops == 4 * 8 * 10 * 64
    assert cases.attention(4, mask="bool").flops == 4 * 8 * 12 * 64
    decode = cases.attention(1, 4096)
    assert (decode.op, decode.limit, decode.limit_bytes) == ("decode", "read", 2 * 8 * 4096 * 64 * 4)


@pytest.mark.parametrize("case", SMALL, ids=lambda case: f"{case.op} {case.label}")
def test_truth_agrees_with_float32_and_sees_a_wrong_element(case):
    given = truth.inputs(case)
    exact = truth.Truth(case, given)
    result = np.asarray(exact.result, np.float32)
    assert exact.error(result) <= 1.01  # rounding alone
    index = tuple(size - 1 for size in result.shape)
    for wrong in (result[index] + 0.01, np.nan):
        broken = result.copy()
        broken[index] = wrong
        assert not exact.error(broken) <= case.tolerance


def test_truth_of_masks_leaves_out_what_is_not_seen():
    case = cases.attention(8, mask="bool")
    given = truth.inputs(case)
    before = truth.Truth(case, given).result
    given["v"][:, :, cases.padded(8) :] = 100
    assert np.array_equal(before, truth.Truth(case, given).result)
    causal = cases.attention(6, causal=True)
    given = truth.inputs(causal)
    assert np.allclose(truth.Truth(causal, given).result[:, :, 0], given["v"][:, :, 0])


def test_ratio_share_and_prepacked_apart():
    made = document()
    line = table.Line(made, made["results"], "C++")
    assert line.headlane["isa"] == "avx512"
    assert list(line.other_isas) == ["avx2"]
    assert line.ratio("plain") == 1.5
    assert line.headlane_prepacked["seconds"] == 0.5
    assert list(line.prepacked) == ["oneDNN"]
    assert line.ratio("prepacked") == 1.6
    assert table.share(line.headlane) == 0.5
    assert table.share(line.headlane_prepacked) == 1
    assert table.ratio(None, [made["results"][2]]) is None
    assert table.ratio(line.headlane, []) is None


def test_table_shows_the_figures(capsys, monkeypatch):
    monkeypatch.setattr(table.console, "file", sys.stdout)
    made = document()
    made["failures"] = [
        {"contender": "MKL", "case": f"gemm {i}", "threads": 1, "reason": "wrong"} for i in range(3)
    ]
    table.print_results(made, "gemm")
    table.print_failures(made["failures"])
    shown = capsys.readouterr().out
    for text in (
        "1.50x",
        "1.60x",
        "headlane prepacked",
        "50 %",
        "100 %",
        "±10%",
        "1.2ε",
        "left out: MKL gemm 0, threads: 1 and 2 more: wrong",
    ):
        assert text in shown


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH Zen MAX_THREADS=64", "0.3.21"),
        ("Intel(R) oneAPI Math Kernel Library Version 2026.2-Product Build 20260915", "2026.2"),
        ("2.13.0+cpu", "2.13.0"),
        ("", ""),
    ],
)
def test_version_number(text, number):
    assert record.short(text) == number


def test_turns_let_everyone_begin():
    entries = ["a", "b", "c"]
    orders = [measure.turns(entries, number) for number in range(6)]
    assert all(sorted(order) == entries for order in orders)
    assert {order[0] for order in orders} == set(entries)
    assert measure.turns([], 1) == []


def test_slow_builds_are_spared_the_large_cases():
    scalar = contenders.Contender("headlane", "C++", ("gemm",), (), isa="scalar")
    assert scalar.takes(cases.gemm(64, 64, 64), 1)
    assert not scalar.takes(cases.gemm(64, 64, 64), 2)
    assert not scalar.takes(cases.gemm(2048, 2048, 2048), 1)
    assert not scalar.takes(cases.softmax(4, 4), 1)


def test_busy_is_a_share():
    assert 0 <= record.busy(0.1) <= 1


def test_document_is_json_with_the_fields_of_the_schema():
    made = record.document("0.1.0", {"cpu": "a CPU", "limits": []})
    assert set(json.loads(json.dumps(made))) >= {
        "schema",
        "headlane",
        "commit",
        "date",
        "machine",
        "contenders",
        "results",
        "failures",
    }
    assert made["schema"] == "headlane-peers-1"
    assert os.linesep not in made["commit"]
