"""What ./dev peers is made of, without measuring: cases, truth, ratios, tables, the document."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

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
    quick = {case.op for case in EVERY_CASE if case.quick}
    assert quick == {"gemm", "softmax", "attention", "attention_options", "decode", "norms", "layers"}


def test_labels_say_what_it_is():
    labels = {case.label for case in EVERY_CASE}
    wanted = ["L=16384", "L=2048 1 head", "64xL=32", "L=16384 window 256", "L=16384 causal window 256"]
    wanted += [
        "L=2048 float mask",
        "L=2048 dense bool mask",
        "L=2048 bit mask",
        "L=2048 causal ALiBi",
        "L=2048 T5 bias",
    ]
    wanted += ["L=1024 8 heads on 2", "L=1024 head_dim 80", "8x1024 keys", "4096x512 masked"]
    assert labels.issuperset(wanted)


def test_the_case_without_the_option_is_measured_too():
    for case in EVERY_CASE:
        assert not case.base or any(
            other.label == case.base and other.op in (case.op, "attention") for other in EVERY_CASE
        )


def test_work_of_a_call():
    assert cases.gemm(2, 3, 4).flops == 48
    assert cases.gemm(2, 3, 4).bytes == 4 * (8 + 12 + 6)
    assert cases.softmax(2, 8).bytes == 128
    assert cases.attention(4).flops == 4 * 8 * 16 * 64
    assert cases.attention(4, causal=True).flops == 4 * 8 * 10 * 64
    assert cases.attention(4, mask="bool").flops == 4 * 8 * 12 * 64
    assert cases.attention(4, mask="dense").flops == cases.attention(4).flops
    assert cases.attention(6, window=(2, 1)).flops == 4 * 8 * 64 * (2 + 3 + 4 + 4 + 4 + 3)
    assert cases.attention(6, causal=True, window=(2, 0)).flops == 4 * 8 * 64 * (1 + 2 + 3 + 3 + 3 + 3)
    assert cases.attention(4, kv_heads=2).bytes == 4 * 64 * 4 * (2 * 8 + 2 * 2)
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
    window = cases.attention(9, window=(0, 0))
    given = truth.inputs(window)
    assert np.allclose(truth.Truth(window, given).result, given["v"])


def test_truth_of_grouped_heads_is_that_of_repeated_ones():
    grouped, all_heads = cases.attention(6, kv_heads=2), cases.attention(6)
    given = truth.inputs(grouped)
    repeated = {**given, **{name: given[name].repeat(4, axis=1) for name in "kv"}}
    assert np.array_equal(truth.Truth(grouped, given).result, truth.Truth(all_heads, repeated).result)


def test_buckets_are_those_of_t5():
    """Eight single distances either way, then eight that grow by the eighth root of 16 = 128 / 8, which is the root of 2."""
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


def test_ratio_share_and_prepacked_apart():
    made = document()
    line = table.Line(made, made["results"], "C++")
    assert line.headlane["isa"] == "avx512"
    assert list(line.own) == ["avx2"]
    assert line.ratio("plain") == 1.5
    assert line.headlane_prepacked["seconds"] == 0.5
    assert list(line.prepacked) == ["oneDNN"]
    assert line.ratio("prepacked") == 1.6
    assert table.share(line.headlane) == 0.5
    assert table.share(line.headlane_prepacked) == 1
    assert table.ratio(None, [made["results"][2]]) is None
    assert table.ratio(line.headlane, []) is None


def test_a_cache_has_columns_of_its_own():
    made = document()
    for isa in ("avx512", "avx2"):
        made["contenders"].append({"name": "headlane cache", "isa": isa, "route": "C++", "prepacked": False})
        made["results"].append(row("headlane cache", 0.8, isa))
    line = table.Line(made, made["results"], "C++")
    assert line.headlane["contender"] == "headlane"
    assert list(line.own) == ["avx2", "headlane cache", "headlane cache avx2"]
    assert "62 %" in table.own_cell(line.own["headlane cache"])


def test_cost_of_an_option():
    """The same work takes 1.5 times as long, on a machine that is twice as fast at that moment: 3 times."""
    plain = {**row("headlane", 2, "avx512"), "op": "attention", "case": "L=8"}
    masked = {
        **row("headlane", 3, "avx512", limit=0.25),
        "op": "attention_options",
        "case": "L=8 mask",
        "base": "L=8",
    }
    assert table.cost(masked, [plain, masked]) == pytest.approx(3)
    assert table.cost(masked, [masked]) is None
    assert table.cost(plain, [plain, masked]) is None
    beside = {**plain, "op": "attention_options", "seconds": 1}
    assert table.cost(masked, [plain, beside, masked]) == pytest.approx(6)


def test_gain_of_threads():
    one, two = row("headlane", 1.9, "avx512"), {**row("headlane", 1, "avx512"), "threads": 2}
    assert table.gain(two, [row("headlane", 3, "avx2"), one, two]) == pytest.approx(1.9)
    assert table.gain(one, [one, two]) is None
    assert table.gain(two, [two]) is None


def test_memory_is_told(capsys, monkeypatch):
    monkeypatch.setattr(table.console, "file", sys.stdout)
    case = cases.MEMORY[0]
    made = {**row("headlane", 2), "op": case.op, "case": case.label, "shape": case.shape, "memory": 33 << 20}
    table.print_memory({"results": [made]})
    shown = capsys.readouterr().out
    assert "33.0 MiB at most besides 512 MiB" in " ".join(shown.split())


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


def test_who_takes_what():
    everyone = contenders.every(Path("/nowhere"), ["avx512", "avx2", "scalar", "portable"])

    def takers(case: cases.Case) -> set[str]:
        return {contender.title for contender in everyone if contender.takes(case, 1)}

    options = [case for case in EVERY_CASE if case.op == "attention_options"]
    for case in options:
        assert {"headlane", "headlane avx2"} <= takers(case)
        assert "headlane scalar" not in takers(case)
    assert takers(cases.attention(8, option="softcap")) == {"headlane", "headlane avx2", "headlane scalar"}
    assert takers(cases.attention(8, window=(1, 1))) == takers(cases.attention(8, option="softcap"))
    assert takers(cases.attention(8, mask="dense")) == takers(cases.attention(8))
    assert "PyTorch SDPA" in takers(cases.attention(8, kv_heads=2))
    assert "OpenVINO" not in takers(cases.attention(8, kv_heads=2))
    assert takers(cases.attention(1, 8)) - takers(cases.attention(8)) == {
        "headlane cache",
        "headlane cache avx2",
    }


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
