"""`./dev peers mpi`: many ranks with few threads beside few ranks with many, and torch.distributed. See README.md."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from . import record
from .workers.process import Failure

CASES = {
    "cyclic": 16384,
    "whole": 16384,
    "decode": 262144,
    "encoder": 128,
}
TITLES = {
    "cyclic": "causal attention, {} tokens",
    "whole": "attention, {} tokens",
    "decode": "decoding, {} keys",
    "encoder": "encoder layer, 16 × {} tokens",
}
TO_REACH = {"cyclic": 0.97, "whole": 0.97, "decode": 0.97, "encoder": 0.9}


def mpirun(ranks: int, threads: int, command: list[str]) -> dict:
    environment = os.environ | {
        "OMP_NUM_THREADS": str(threads),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), *command]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    if run.returncode != 0:
        raise Failure(
            run.stderr.strip().splitlines()[0] if run.stderr.strip() else f"status {run.returncode}"
        )
    return json.loads(run.stdout.splitlines()[-1])


def contenders(programs: Path) -> dict[str, tuple[list[str], set[str]]]:
    """The command of each, and its cases."""
    native = programs.parents[1] / "mpi" / "headlane_bench_mpi"
    gloo = [sys.executable, "-m", "peers.routes.gloo"]
    return {
        "headlane": ([str(native)], set(CASES)),
        "torch.distributed, gloo": (gloo, {"cyclic", "whole", "encoder"}),
    }


def measure_case(session, name: str) -> dict:
    """Medians over alternating processes of 1 rank with all cores and a rank for each core."""
    cores = max(session.options.threads)
    length = CASES[name] // (8 if session.options.quick else 1)
    rounds, seconds = (1, 0.2) if session.options.quick else (5, 3.0)
    layouts = [(1, cores), (cores, 1)]
    row = {"case": name, "title": TITLES[name].format(length), "to_reach": TO_REACH[name], "seconds": {}}
    for title, (command, cases) in contenders(session.options.programs).items():
        if name not in cases:
            continue
        times: dict[str, list[float]] = {f"{ranks} × {threads}": [] for ranks, threads in layouts}
        for number in range(rounds):
            for ranks, threads in layouts[:: 1 if number % 2 == 0 else -1]:
                session.progress.step(f"{title}, {ranks} ranks, {threads} threads")
                try:
                    result = mpirun(ranks, threads, [*command, name, str(length), str(seconds)])
                except (Failure, subprocess.TimeoutExpired) as failure:
                    session.bench.fail(title, str(failure))
                    break
                times[f"{ranks} × {threads}"].append(result["median"])
        row["seconds"][title] = {layout: statistics.median(found) for layout, found in times.items() if found}
    return row


def print_rows(rows: list[dict]) -> None:
    print("\nOne rank with all cores beside a rank for each core (seconds; ranks × threads)\n")
    for row in rows:
        for title, times in row["seconds"].items():
            text = "   ".join(f"{layout}: {time:.4f}" for layout, time in times.items())
            if not times:
                continue
            first, *rest = times.values()
            ratio = f"   ratio {first / rest[0]:.3f}" if rest else ""
            wanted = f" (to reach {row['to_reach']})" if title == "headlane" else ""
            print(f"{row['title']:<34} {title:<26} {text}{ratio}{wanted}")


def measure(session, machine: dict) -> Path:
    document = record.document(session.about["version"], machine)
    rows = []
    for name in CASES:
        if session.options.case and not session.options.case.search(name):
            continue
        session.progress.case(name)
        rows.append(measure_case(session, name))
    session.progress.clear()
    print_rows(rows)
    document |= {"mpi": rows, "failures": session.bench.failures}
    return record.write(document, session.options.json or Path("build/peers/mpi.json"))
