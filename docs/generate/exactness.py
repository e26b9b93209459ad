"""Fills exactness.md with what the tests found."""

import sys
from pathlib import Path

from figures import exactness, page

page.fill(Path(sys.argv[1]) / "exactness.md", exactness.values())
