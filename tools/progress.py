"""Progress of a long run, on standard error."""

from __future__ import annotations

import sys
from typing import TextIO


class Progress:
    """A line for each case; on a terminal a single line, which also shows the current step of the case."""

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self.total, self.number, self.head = total, 0, ""
        self.stream = stream or sys.stderr
        self.single = self.stream.isatty()

    def case(self, label: str) -> None:
        self.number += 1
        self.head = f"[{self.number}/{self.total}] {label}"
        self._write(self.head)

    def step(self, text: str) -> None:
        if self.single:
            self._write(f"{self.head}, {text}" if self.head else text)

    def clear(self) -> None:
        """Before something else is printed."""
        if self.single:
            self._write("")

    def _write(self, text: str) -> None:
        self.stream.write(f"\r\033[K{text}" if self.single else f"{text}\n")
        self.stream.flush()
