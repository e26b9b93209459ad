"""Checks that every test program is built: `./dev lint tree`.

A file that no CMakeLists.txt names is neither compiled nor missed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

FOLDERS = "tests models/tests mpi/tests".split()


def faults(folder: Path) -> Iterator[str]:
    """Files test_NAME.cpp in the folder whose NAME is no word of a CMake file in it."""
    listed: set[str] = set()
    for file in [*folder.rglob("CMakeLists.txt"), *folder.rglob("*.cmake")]:
        listed.update(re.findall(r"\w+", file.read_text()))
    for file in sorted(folder.rglob("test_*.cpp")):
        if file.stem.removeprefix("test_") not in listed:
            yield f"{file} is not built: no CMakeLists.txt in {folder} names it"


def main() -> int:
    found = [fault for folder in FOLDERS for fault in faults(Path(folder))]
    for fault in found:
        print(f"tests: {fault}", file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
