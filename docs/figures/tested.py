"""What the tests say of their comparisons, in docs/data/tested.json.

    PYTHONPATH=docs python3 -m figures.tested build/release

reads the log that ctest left in this build folder. Run ./dev test first.
"""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path

LOG = "Testing/Temporary/LastTest.log"
FILE = Path(__file__).parents[1] / "data" / "tested.json"
LINES = {
    "test": r"^\d+/\d+ Test: (?P<name>\S+)$",
    "bound": r"^(?P<name>\S.*?)\s+(?P<count>\d+) comparisons, worst error / bound (?P<worst>[\d.]+)$",
    "ulp": r"MESSAGE: (?P<name>.+), isa (?P<isa>\w+): (?P<count>\d+) (?:floats|values), at most (?P<worst>\S+) ULP",
    "activation": r"MESSAGE: (?P<name>\w+), isa (?P<isa>\w+): at most (?P<worst>\S+) ULP, (?P<share>\S+) of the limit",
    "bits": r"(?P<count>\d+) comparisons by bits(?:, (?P<differ>\d+) differ)?",
    "exact": r"exact gemm, isa (?P<isa>\w+): (?P<shapes>\d+) shapes, (?P<count>\d+) elements, (?P<differ>\d+) differ",
    "guarded": r"(?P<count>\d+) guarded cases",
    "illegal": r"(?P<count>\d+) illegal calls",
    "combined": r"MESSAGE: (?P<count>\d+) cases, \d+ of them",
}


@dataclass
class Counted:
    """A kind of comparison: how many there were, and how many failed or how bad the worst was."""

    count: int = 0
    worst: float = 0.0

    def add(self, count: int, worst: float = 0.0) -> None:
        self.count += count
        self.worst = max(self.worst, worst)


@dataclass
class Tested:
    cpu: str
    cores: int
    compiler: str
    headlane: str
    date: str
    tests: int = 0
    isas: list[str] = field(default_factory=list)
    bounds: dict[str, Counted] = field(default_factory=dict)
    ulp: dict[str, Counted] = field(default_factory=dict)
    shares: dict[str, Counted] = field(default_factory=dict)  # of the stated limit in ULP
    counts: dict[str, Counted] = field(default_factory=dict)  # by the names in LINES


def read_log(text: str, into: Tested) -> None:
    """Fails if no line of one of the kinds is there: its wording has changed, or these tests did not run."""
    found = dict.fromkeys(LINES, 0)
    for line in text.splitlines():
        for kind, pattern in LINES.items():
            match = re.search(pattern, line)
            if match:
                found[kind] += 1
                note(kind, match.groupdict(), into)
    if missing := [kind for kind, count in found.items() if count == 0]:
        raise ValueError(f"the log has no lines of these kinds: {', '.join(missing)}")


def note(kind: str, values: dict[str, str | None], into: Tested) -> None:
    isa = values.get("isa") or ""
    if isa and isa not in into.isas:
        into.isas.append(isa)
    if kind == "test":
        into.tests += 1
    elif kind == "bound":
        into.bounds.setdefault(values["name"], Counted()).add(int(values["count"]), float(values["worst"]))
    elif kind in ("ulp", "activation"):
        into.ulp.setdefault(values["name"], Counted()).add(
            int(values.get("count") or 0), float(values["worst"])
        )
        if kind == "activation":
            into.shares.setdefault(values["name"], Counted()).add(0, float(values["share"]))
    else:
        into.counts.setdefault(kind, Counted()).add(int(values["count"]), float(values.get("differ") or 0))


def about(build: Path) -> Tested:
    (found,) = build.glob("CMakeFiles/*/CMakeCXXCompiler.cmake")
    compiler = dict(
        re.findall(r'set\(CMAKE_CXX_COMPILER_(ID|VERSION) "([^"]+)"\)', found.read_text(encoding="utf-8"))
    )
    cmake = (Path(__file__).parents[2] / "CMakeLists.txt").read_text(encoding="utf-8")
    cpu = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return Tested(
        cpu=cpu[1] if cpu else "unknown",
        cores=len(os.sched_getaffinity(0)),
        compiler={"GNU": "GCC"}.get(compiler["ID"], compiler["ID"]) + " " + compiler["VERSION"],
        headlane=re.search(r"project\(headlane VERSION ([\d.]+)", cmake)[1],
        date=date.fromtimestamp((build / LOG).stat().st_mtime).isoformat(),
    )


def load() -> Tested:
    document = json.loads(FILE.read_text(encoding="utf-8"))
    for kind in ("bounds", "ulp", "shares", "counts"):
        document[kind] = {name: Counted(**counted) for name, counted in document[kind].items()}
    return Tested(**document)


def save(tested: Tested) -> None:
    FILE.write_text(json.dumps(asdict(tested), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    result = about(folder)
    read_log((folder / LOG).read_text(encoding="utf-8", errors="replace"), result)
    save(result)
    print(FILE)
