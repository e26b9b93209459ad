from __future__ import annotations

import io

from progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(stream: io.StringIO) -> str:
    progress = Progress(2, stream)
    progress.step("starting")
    for case in ("a", "b"):
        progress.case(case)
        progress.step("threads: 1")
    progress.clear()
    return stream.getvalue()


def test_a_file_gets_a_line_for_each_case():
    assert run(io.StringIO()) == "[1/2] a\n[2/2] b\n"


def test_a_terminal_has_one_line_with_the_step():
    shown = run(Terminal()).split("\r\033[K")
    assert shown == ["", "starting", "[1/2] a", "[1/2] a, threads: 1", "[2/2] b", "[2/2] b, threads: 1", ""]
