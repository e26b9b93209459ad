"""Every model type of transformers, small and random, with "headlane" and with "eager": a process
for each.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.update(
    OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="critical", TOKENIZERS_PARALLELISM="false"
)


def child(model_type: str, pipe: int, seconds: int, memory: int, optimized: bool) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    from .cases import reason, sweep

    try:
        row = sweep(model_type, optimized)
    except BaseException as error:
        row = not_built(model_type, reason(error))
    with os.fdopen(pipe, "w") as out:
        json.dump(row, out)
    os._exit(0)


def not_built(model_type: str, why: str) -> dict[str, Any]:
    return {"type": model_type, "cases": {}, "status": "not built", "why": why}


def row_of(model_type: str, text: bytes, code: int, seconds: int) -> dict[str, Any]:
    """The output of a process that ended with this code."""
    if text:
        return json.loads(text)
    late = os.WIFSIGNALED(code) and os.WTERMSIG(code) in (signal.SIGXCPU, signal.SIGKILL)
    return not_built(model_type, f"takes more than {seconds} s" if late else f"the process ended with {code}")


def sweep_all(
    types: list[str], jobs: int, seconds: int, memory: int, optimized: bool
) -> Iterator[dict[str, Any]]:
    """A row for each type, in the order in which they end."""
    waiting, running = list(reversed(types)), {}
    while waiting or running:
        while waiting and len(running) < jobs:
            model_type = waiting.pop()
            read, write = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(read)
                child(model_type, write, seconds, memory, optimized)
            os.close(write)
            running[read] = [model_type, pid, b""]
        for pipe in select.select(list(running), [], [])[0]:
            model_type, pid, text = running[pipe]
            if data := os.read(pipe, 1 << 20):
                running[pipe][2] += data
                continue
            del running[pipe]
            os.close(pipe)
            yield row_of(model_type, text, os.waitpid(pid, 0)[1], seconds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev models-table", description=__doc__)
    parser.add_argument(
        "--only", metavar="REGEX", help="these model types; the others keep the rows that --json has"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time")
    parser.add_argument("--seconds", type=int, default=90, help="of the CPU, for one model type")
    parser.add_argument("--memory", type=int, default=8, help="GiB of address space for one model type")
    parser.add_argument(
        "--json", type=Path, default=Path("build/models-table.json"), help="rows, as they are found"
    )
    parser.add_argument(
        "--table", type=Path, default=Path("docs/site/guide/transformers.md"), help="where the table goes"
    )
    parser.add_argument(
        "--optimized", action="store_true", help="models of headlane.torch.optimize(), without a table"
    )
    options = parser.parse_args()
    import headlane
    import torch

    torch.set_num_threads(1)
    headlane.set_num_threads(1)
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    from . import cases, table

    types = [t for t in sorted(CONFIG_MAPPING_NAMES) if re.fullmatch(options.only or ".*", t)]
    rows = {}
    if options.only and options.json.exists():
        rows = {row["type"]: row for row in json.loads(options.json.read_text())}
    found = sweep_all(types, options.jobs, options.seconds, options.memory << 30, options.optimized)
    for count, row in enumerate(found, 1):
        rows[row["type"]] = row
        print(
            f"{count}/{len(types)} {row['type']}: {table.status(row)} {row.get('why', '')}"[:200],
            file=sys.stderr,
            flush=True,
        )
        options.json.write_text(json.dumps(list(rows.values()), indent=1))
    if not options.optimized:
        text = table.markdown(rows.values(), CONFIG_MAPPING_NAMES, cases.TOLERANCE)
        options.table.write_text(text)
        print(text)
    faults = [row["type"] for row in rows.values() if row["status"] in ("differs", "fails")]
    sys.exit(f"neither equal nor refused: {', '.join(faults)}" if faults else 0)


main()
