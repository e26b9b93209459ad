"""Fills nodes.md from docs/data. Its own name is not that of the package in bench."""

import sys
from pathlib import Path

from figures import nodes, page

page.fill(Path(sys.argv[1]) / "nodes.md", nodes.values())
