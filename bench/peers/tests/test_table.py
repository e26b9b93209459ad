"""The figures in the tables: shares, ratios, costs."""

from __future__ import annotations

import sys

import pytest

from ..cases import operations as cases
from ..table import operations as table


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
    """headlane takes 1 s, with AVX2 2 s, with a packed b 0.5 s; its peers 3 s and 1.5 s, with a packed b 0.8 s."""
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
