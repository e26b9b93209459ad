"""Checks that every test program is built, and that `./dev mutate` leaves out no fault in vain: `./dev lint tree`.

A file that no CMakeLists.txt names is neither compiled nor missed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

FOLDERS = "tests models/tests mpi/tests".split()
EQUIVALENT = "tools/mutate/equivalent.txt"


def faults(folder: Path) -> Iterator[str]:
    """Files test_NAME.cpp in the folder whose NAME is no word of a CMake file in it."""
    listed: set[str] = set()
    for file in [*folder.rglob("CMakeLists.txt"), *folder.rglob("*.cmake")]:
        listed.update(re.findall(r"\w+", file.read_text()))
    for file in sorted(folder.rglob("test_*.cpp")):
        if file.stem.removeprefix("test_") not in listed:
            yield f"{file} is not built: no CMakeLists.txt in {folder} names it"


def stale_entries(root: Path) -> Iterator[str]:
    """Entries `FILE: LINE  =>  ...` of equivalent.txt whose file has no such line."""
    for entry in (root / EQUIVALENT).read_text().splitlines():
        if not entry or entry.startswith("#"):
            continue
        file, line = entry.partition("  =>  ")[0].split(": ", 1)
        path = root / file
        if not path.exists() or line not in [" ".join(x.split()) for x in path.read_text().splitlines()]:
            yield f"{EQUIVALENT}: {file} has no line {line}"


def main() -> int:
    found = [fault for folder in FOLDERS for fault in faults(Path(folder))]
    found += stale_entries(Path())
    for fault in found:
        print(f"tests: {fault}", file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
