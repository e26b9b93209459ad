"""Fills performance.md from docs/data, and checks that README.md shows the same figures."""

import sys
from pathlib import Path

from figures import measured, page, performance, readme

machines = measured.machines()
page.fill(Path(sys.argv[1]) / "performance.md", performance.values(machines))
if readme.MARKERS[0] in readme.README.read_text(encoding="utf-8"):
    for path in readme.outdated(machines[0]):
        sys.exit(f"{path} shows older figures: PYTHONPATH=docs python3 -m figures.readme writes it")
