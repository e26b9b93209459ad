"""Writes the table of speeds in README.md anew: PYTHONPATH=docs python -m figures.readme"""

from pathlib import Path

from . import measured, performance

README = Path(__file__).parents[2] / "README.md"

if __name__ == "__main__":
    text = README.read_text(encoding="utf-8")
    README.write_text(performance.with_table(text, measured.machines()[0]), encoding="utf-8")
