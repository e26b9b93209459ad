"""Fills design.md with its pictures."""

import sys
from pathlib import Path

from figures import design, page

page.fill(Path(sys.argv[1]) / "design.md", design.values())
