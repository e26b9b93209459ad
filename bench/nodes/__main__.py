"""Parallelism over nodes: python -m nodes check | simulate (with bench in PYTHONPATH)."""

from __future__ import annotations

import argparse
import datetime
import platform
from pathlib import Path

from . import check, simulate


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m nodes", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("check", help="run bench_mpi over slow links: docs/data/nodes-check.json")
    one.add_argument(
        "--programs", type=Path, default=Path("build/release/mpi"), help="where CMake built them"
    )
    one.add_argument("--rounds", type=int, default=5)
    one.add_argument("--seconds", type=float, default=1.0, help="of each run")
    one.add_argument("--more", action="store_true", help="in addition to the rounds in that file")
    commands.add_parser("simulate", help="the model's times of up to 1,024 nodes: docs/data/nodes.csv")
    arguments = parser.parse_args()
    if arguments.command == "simulate":
        return simulate.main()
    about = {"date": datetime.date.today().isoformat(), "processor": processor()}
    return check.main(arguments.programs, arguments.rounds, arguments.seconds, about, more=arguments.more)


if __name__ == "__main__":
    main()
