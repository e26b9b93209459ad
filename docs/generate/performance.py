"""Fills performance.md from docs/data, and checks that README.md shows the same figures."""

import sys
from pathlib import Path

from figures import measured, page, performance

machines = measured.machines()
page.fill(Path(sys.argv[1]) / "performance.md", performance.values(machines))
readme = Path("README.md").read_text(encoding="utf-8")
if performance.MARKERS[0] in readme and performance.with_table(readme, machines[0]) != readme:
    sys.exit("README.md shows older figures: PYTHONPATH=docs python3 -m figures.readme writes it")
