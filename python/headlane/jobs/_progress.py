"""Lines on standard error: how far the job is."""

from __future__ import annotations

import contextlib
import sys
import time

from ._ranks import LINES, Ranks


def duration(seconds: float) -> str:
    """As 5 s, 3:20 or 2:03:20."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def say(name: str, text: str) -> None:
    """A line; a job does not end because nobody can read it."""
    with contextlib.suppress(OSError):
        print(f"{name}: {text}", file=sys.stderr, flush=True)


class Progress:
    """Counts lines over all ranks; rank 0 prints at most once a second."""

    def __init__(self, name: str, ranks: Ranks, lines: int, before: int, shown: bool) -> None:
        self._name = name
        self._ranks = ranks
        self._lines = lines  # of the input
        self._before = before  # that earlier runs finished
        self._shown = shown and ranks.rank == 0
        self._begin = self._last = time.monotonic()

    def add(self, lines: int) -> None:
        """Lines that this rank finished."""
        done = self._ranks.add(LINES, lines) + lines
        if self._shown:
            self._show(done)

    def wait(self) -> None:
        """While rank 0 waits for others."""
        if self._shown:
            self._show(self._ranks.add(LINES, 0))

    def _show(self, done: int) -> None:
        now = time.monotonic()
        if now - self._last < 1:
            return
        self._last = now
        rate = done / (now - self._begin)
        all_done = min(self._before + done, self._lines)  # some may be computed again
        left = f"{duration((self._lines - all_done) / rate)} left" if done else "no estimate yet"
        share = 100 * all_done / self._lines
        say(self._name, f"{all_done} of {self._lines} lines ({share:.1f} %), {rate:.1f} lines/s, {left}")
