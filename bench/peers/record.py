"""The JSON document: the machine, who took part in which version, and the rows that were measured."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from time import sleep

from .measure.operations import Probe
from .workers.process import Worker

SCHEMA = "headlane-peers-1"
READS = (16 << 10, 128 << 10, 1 << 20, 8 << 20, 256 << 20)
COPIES = (1 << 20, 8 << 20, 128 << 20)


def _git(*words: str) -> str:
    try:
        done = subprocess.run(["git", *words], capture_output=True, text=True)
    except FileNotFoundError:  # no git here
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


# As the program begins: files may be edited while it measures.
_SOURCE = {
    "commit": _git("rev-parse", "--short", "HEAD"),
    "modified": bool(_git("status", "--porcelain", "--untracked-files=no")),
}


def machine(about: dict[str, str], probes: dict[int, Probe]) -> dict:
    """To be called while all workers stand still."""
    return {
        "busy": round(busy(), 3),
        "cpu": about["cpu"],
        "cores": len(os.sched_getaffinity(0)),
        "os": platform.freedesktop_os_release().get("PRETTY_NAME", platform.system()),
        "compiler": about["compiler"],
        "limits": [line for probe in probes.values() for line in probe.summary(READS, COPIES)],
    }


def busy(seconds: float = 1) -> float:
    """The share of the CPUs' time that is in use now: by others, who disturb what will be measured."""

    def idle_and_all() -> tuple[int, int]:
        with open("/proc/stat") as stat:
            times = [int(word) for word in stat.readline().split()[1:]]
        return times[3] + times[4], sum(times)  # idle, waiting for a disk

    idle, everything = idle_and_all()
    sleep(seconds)
    idle_now, everything_now = idle_and_all()
    return 1 - (idle_now - idle) / max(1, everything_now - everything)


def document(version: str, machine: dict) -> dict:
    return {
        "schema": SCHEMA,
        "headlane": version,
        **_SOURCE,
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "machine": machine,
        "contenders": [],
        "results": [],
        "failures": [],
    }


def add(document: dict, workers: list[Worker], rows: list[dict], failures: list[dict]) -> None:
    for worker in workers:
        contender = worker.contender
        line = {
            "name": contender.name,
            "version": short(worker.about.get("version", "")),
            "route": contender.route,
            "isa": worker.about.get("isa"),
            "prepacked": contender.prepacked,
            "about": worker.about.get("version", ""),
        }
        if line not in document["contenders"]:
            document["contenders"].append(line)
    document["results"] += rows
    document["failures"] += failures


def write(document: dict, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    return path


def short(version: str) -> str:
    """The number in what a library says of itself, such as "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH Zen"."""
    found = re.search(r"\d+(\.\d+)+", version)
    return found[0] if found else version
