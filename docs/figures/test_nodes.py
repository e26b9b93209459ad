"""nodes.md shows what its data files hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from nodes import check, simulate

from . import nodes, page

PAGE = Path(__file__).parents[1] / "site" / "nodes.md"


def test_the_page_shows_every_run_of_the_check(tmp_path):
    copy = tmp_path / "nodes.md"
    copy.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    page.fill(copy, nodes.values())
    shown = copy.read_text(encoding="utf-8")
    _, runs = check.load()
    pairs = nodes.compared(runs)
    assert len(pairs) == len(check.RUNS)
    for run, seconds, model in pairs:
        assert seconds == runs[run]
        cells = f"| {nodes.time(seconds)} | {nodes.time(model)} | {seconds / model:.2f} |"
        assert any(
            line.startswith(f"    | {nodes.KINDS[run.case]} | ") and cells in line
            for line in shown.splitlines()
        )


def test_the_simulated_times_are_the_models():
    """Of few nodes, which do not take long to compute: otherwise `python -m nodes simulate` writes them anew."""
    node, cases = simulate.node(), simulate.cases()
    for row in nodes.load():
        if row.nodes <= 4:
            links = simulate.links_of(row.alpha_us, row.gbit)
            assert row.seconds == pytest.approx(cases[row.case](row.nodes, node, links), rel=1e-4)


def test_limits_are_read_from_the_rows():
    rows = [nodes.Row(case, 2, 200, count, 8 / count + count / 8, 8 / (8 + count**2 / 8))
            for case in nodes.TITLES for count in (1, 2, 4, 8, 16)]  # fmt: skip
    table = nodes.limits_table(rows)
    assert table.count("| 8: 2 s | 8: 2 s |") == len(nodes.TITLES)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(3.2e-5, "32 µs"), (0.0012345, "1.23 ms"), (0.9996, "1 s"), (1362.4, "1,362 s"), (0.15, "150 ms")],
)
def test_times_are_written_with_three_digits(seconds, text):
    assert nodes.time(seconds) == text
