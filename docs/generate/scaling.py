"""Fills scaling.md from docs/data."""

import sys
from pathlib import Path

from figures import page, scaling

page.fill(Path(sys.argv[1]) / "scaling.md", scaling.values())
