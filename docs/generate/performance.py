"""Fills performance.md from docs/data, and checks that README.md shows the same figures."""

import sys
from pathlib import Path

from figures import measured, page, performance, readme

machines = measured.machines()
page.fill(Path(sys.argv[1]) / "performance.md", performance.values(machines))
text = readme.README.read_text(encoding="utf-8")
if readme.MARKERS[0] in text and readme.with_table(text, machines[0]) != text:
    sys.exit("README.md shows older figures: PYTHONPATH=docs python3 -m figures.readme writes it")
