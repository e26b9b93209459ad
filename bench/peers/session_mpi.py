"""`./dev peers mpi`: many ranks with few threads beside few ranks with many, and torch.distributed. See README.md."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from . import record
from .measure.models import minilm_folder
from .routes.embed_job import write_corpus
from .table.operations import print_failures
from .workers.process import Failure

CASES = {
    "cyclic": 16384,
    "whole": 16384,
    "decode": 262144,
    "encoder": 128,
    "embed": 8192,
}
TITLES = {
    "cyclic": "causal attention, {} tokens",
    "whole": "attention, {} tokens",
    "decode": "decoding, {} keys",
    "encoder": "encoder layer, 16 × {} tokens",
    "embed": "headlane-embed, {} sentences",
}
TO_REACH = {"cyclic": 0.97, "whole": 0.97, "decode": 0.97, "encoder": 0.9, "embed": 0.98}

# Short calls vary more from process to process.
ROUNDS = {"decode": 15, "encoder": 15}


def mpirun(ranks: int, threads: int, command: list[str]) -> dict:
    environment = os.environ | {
        "OMP_NUM_THREADS": str(threads),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), *command]
    begun = time.monotonic()
    run = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    if run.returncode != 0:
        raise Failure(
            run.stderr.strip().splitlines()[0] if run.stderr.strip() else f"status {run.returncode}"
        )
    return {**json.loads(run.stdout.splitlines()[-1]), "whole": time.monotonic() - begun}


def contenders(session, name: str, length: int) -> dict[str, list[str]]:
    """The command of each that has the case."""
    if name == "embed":
        try:
            model = minilm_folder()
        except Failure as failure:
            session.bench.fail("headlane", str(failure))
            return {}
        write_corpus(model, session.bench.folder, length)
        job = [sys.executable, "-m", "peers.routes.embed_job", str(model), str(session.bench.folder)]
        return {"headlane": job}
    found = {"headlane": [str(session.options.programs.parents[1] / "mpi" / "headlane_bench_mpi")]}
    if name != "decode":
        found["torch.distributed, gloo"] = [sys.executable, "-m", "peers.routes.gloo"]
    return found


def measure_case(session, name: str) -> dict:
    """Medians over alternating processes of 1 rank with all cores and a rank for each core."""
    cores = max(session.options.threads)
    length = CASES[name] // (8 if session.options.quick else 1)
    rounds, seconds = (1, 0.2) if session.options.quick else (ROUNDS.get(name, 5), 3.0)
    layouts = [(1, cores), (cores, 1)]
    row = {
        "case": name,
        "title": TITLES[name].format(length),
        "to_reach": TO_REACH[name],
        "seconds": {},
        "whole": {},
    }
    for title, command in contenders(session, name, length).items():
        results: dict[str, list[dict]] = {f"{ranks} × {threads}": [] for ranks, threads in layouts}
        for number in range(rounds):
            for ranks, threads in layouts[:: 1 if number % 2 == 0 else -1]:
                session.progress.step(f"{title}, {ranks} ranks, {threads} threads")
                try:
                    result = mpirun(ranks, threads, [*command, name, str(length), str(seconds)])
                except (Failure, subprocess.TimeoutExpired) as failure:
                    session.bench.fail(title, str(failure))
                    break
                results[f"{ranks} × {threads}"].append(result)
        if len({result.get("bits") for found in results.values() for result in found}) > 1:
            session.bench.fail(title, f"{row['title']}: other bits with another number of ranks")
        for key, member in (("seconds", "median"), ("whole", "whole")):
            row[key][title] = {
                layout: statistics.median(result[member] for result in found)
                for layout, found in results.items()
                if found
            }
    return row


def line_of(times: dict[str, float]) -> str:
    text = "   ".join(f"{layout}: {time:.4f}" for layout, time in times.items())
    first, *rest = times.values()
    return text + (f"   ratio {first / rest[0]:.3f}" if rest else "")


def print_rows(rows: list[dict]) -> None:
    print("\nOne rank with all cores beside a rank for each core (seconds; ranks × threads)\n")
    for row in rows:
        for title, times in row["seconds"].items():
            if not times:
                continue
            wanted = f" (to reach {row['to_reach']})" if title == "headlane" else ""
            print(f"{row['title']:<34} {title:<26} {line_of(times)}{wanted}")
            if row["case"] == "embed":
                print(f"{'':<34} {'whole processes':<26} {line_of(row['whole'][title])}")


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
    print_failures(session.bench.failures)
    document |= {"mpi": rows, "failures": session.bench.failures}
    return record.write(document, session.options.json or Path("build/peers/mpi.json"))
