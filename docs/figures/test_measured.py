"""What becomes of a file of ./dev peers in docs/data, and what the pages make of it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from report.data import Report
from report.load import SCHEMA, load

from . import measured, performance, performance_plots, readme


def result(
    contender: str, seconds: float, op: str = "gemm", case: str = "8x8x8", isa: str = "", **more
) -> dict:
    """A row of a file of ./dev peers: 2 · 10⁹ operations, for which the machine needs 0.1 s."""
    shape = {"m": 8, "n": 8, "k": 8}
    limit = {"seconds": 0.1, "kind": "fma"}
    row = {"op": op, "case": case, "threads": 1, "contender": contender, "isa": isa, "seconds": seconds}
    return {**row, "flops": 2e9, "shape": shape, "limit": limit, **more}


def report(*results: dict, **more) -> Report:
    """Of a file with these results."""
    routes = {"headlane": "C++", "BLIS": "C++", "headlane cache": "C++"}
    names = dict.fromkeys((row["contender"], row["isa"]) for row in results)
    contenders = [
        {
            "name": name,
            "version": "1.0",
            "isa": isa,
            "route": routes.get(name, "Python"),
            "prepacked": "prepacked" in name,
        }
        for name, isa in names
    ]
    limits = [
        {"isa": "avx512", "threads": 1, "fma_gflops": 20.04},
        {"isa": "avx2", "threads": 1, "fma_gflops": 10},
    ]
    machine = {"cpu": "A CPU", "cores": 2, "compiler": "GCC", "os": "Linux", "busy": 0, "limits": limits}
    about = {"date": "2026-01-02T03:04:05Z", "headlane": "0.1.0", "commit": "abc", "modified": False}
    document = {
        "schema": SCHEMA,
        **about,
        "machine": machine,
        "contenders": contenders,
        "results": results,
        **more,
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "gemm.json"
        file.write_text(json.dumps(document), encoding="utf-8")
        return load([file])


def test_headlane_is_called_as_the_fastest_other():
    (row,) = measured.rows_of(
        report(
            result("headlane", 0.2, isa="avx512"),
            result("headlane", 0.3, isa="avx2"),
            result("headlane (Python)", 0.25, isa="avx512"),
            result("PyTorch", 0.5),
            result("BLIS", 1.0),
        )
    )
    assert row.speeds == {"headlane": 8.0, "PyTorch": 4.0, "BLIS": 2.0}
    assert row.isas == {"avx2": 6.667}
    assert (row.route, row.best, row.ratio, row.share) == ("Python", ("PyTorch", 4.0), 2.0, 0.4)


@pytest.mark.parametrize("kind", ["int8", "bfloat16"])
def test_weights_of_fewer_bits_are_not_compared_with_float32(kind):
    floats, rounded = measured.rows_of(
        report(
            result("headlane", 0.2, isa="avx512"),
            result(f"headlane {kind}", 0.05, isa="avx512"),
            result("CTranslate2", 0.4),
            result(f"CTranslate2 {kind}", 0.1),
        )
    )
    assert floats.speeds == {"headlane": 10.0, "CTranslate2": 5.0}
    assert rounded.speeds == {"headlane": 40.0, "CTranslate2": 20.0}
    assert rounded.case == f"{floats.case}, {kind}"


def test_the_share_of_the_roofline_has_a_table_where_it_was_measured():
    roofline = {"seconds": 0.15, "kind": "fma"}
    with_it = result("headlane", 0.2, isa="avx512", roofline=roofline)
    rows = measured.rows_of(
        report(with_it, result("BLIS", 0.5), result("headlane prepacked", 0.2, isa="avx512"))
    )
    assert [row.roofline_share for row in rows] == [pytest.approx(0.75, abs=1e-3), None]
    told = performance.rooflines(rows)
    assert "| 8×8×8 | 75 % |" in told
    assert "packed" not in told


def test_what_an_option_costs():
    rows = measured.rows_of(
        report(
            result("headlane", 0.2, "attention", "L=2048", isa="avx512"),
            result("headlane", 0.3, "attention_options", "L=2048 softcap", isa="avx512", base="L=2048"),
        )
    )
    assert [(row.case, row.cost) for row in rows] == [("L=2048", None), ("L=2048 softcap", 1.5)]


def test_packed_weights_and_caches_stand_apart():
    rows = measured.rows_of(
        report(
            result("headlane", 0.2, isa="avx512"),
            result("headlane prepacked", 0.1, isa="avx512"),
            result("oneDNN prepacked", 0.2),
            result("headlane cache", 0.4, isa="avx512"),
        )
    )
    assert [(row.case, row.prepacked, row.speeds) for row in rows] == [
        ("8x8x8", False, {"headlane": 10.0}),
        ("8x8x8", True, {"headlane": 20.0, "oneDNN": 10.0}),
        ("8x8x8, cache", False, {"headlane": 5.0}),
    ]


def test_a_refresh_replaces_only_what_was_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(measured, "FOLDER", tmp_path)
    machine = measured.Machine("x", "A CPU", 2)
    measured.refresh(machine, report(result("headlane", 0.2, isa="avx512"), result("BLIS", 0.4)))
    shape = {"batch": 2, "tokens": 64}
    t5 = result("headlane", 1.0, "t5", "t5-small, batch 2", shape=shape)
    measured.refresh(machine, report(t5, date="2026-02-03T00:00:00Z"))
    assert [run.ops for run in machine.runs] == [["gemm"], ["t5"]]
    measured.refresh(machine, report(result("headlane", 0.1, isa="avx512"), date="2026-03-04T00:00:00Z"))
    assert [(run.ops, run.date) for run in machine.runs] == [(["gemm"], "2026-03-04"), (["t5"], "2026-02-03")]
    assert {row.op: row.ours for row in machine.rows} == {"t5": 128.0, "gemm": 20.0}
    measured.save(machine)
    assert measured.machines() == [machine]


def test_axes_have_round_numbers_up_to_any_speed():
    for most in (0.3, 1, 4.6, 9.8, 9.99, 49, 97.9, 98.4, 99.4, 99.6, 981, 4321):
        found = performance_plots.ticks(most)
        assert found[0] == 0
        assert 2 <= len(found) <= 6
        assert found[-1] <= most


def test_the_table_of_the_readme():
    machine = measured.machines()[0]
    first, last = readme.MARKERS
    text = readme.with_table(f"before\n{first}\nold\n{last}\nafter\n", machine)
    assert text.startswith(f"before\n{first}\n| |")
    assert text.endswith(f"{last}\nafter\n")
    assert "old" not in text
    widths = {line.count("|") for line in text.splitlines() if line.startswith("|")}
    assert widths == {6}
    assert readme.with_table(text, machine) == text
    with pytest.raises(ValueError, match="README"):
        readme.with_table("no markers", machine)


def test_every_page_value_of_the_committed_measurements():
    values = performance.values(measured.machines())
    assert int(values["ahead"]) <= int(values["pairs"])
    assert values["overview"].count("<circle") == int(values["pairs"])
