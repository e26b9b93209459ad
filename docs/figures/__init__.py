"""Figures and tables of the documentation site, computed when it is built."""

import sys
from pathlib import Path

sys.path.append(
    str(Path(__file__).parents[2] / "bench")
)  # the package report, which reads what ./dev peers wrote
