"""headlane beside other libraries, in one run: `./dev peers`. See README.md."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

from . import record, session_models, session_mpi, session_pytorch
from .cases.operations import ALL
from .session import Session, measure_memory, operations
from .table import operations as table
from .workers.process import Failure

WHOLE = {
    "memory": measure_memory,
    "models": session_models.measure,
    "mpi": session_mpi.measure,
    "torch": session_pytorch.measure,
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev peers", description="headlane beside other libraries, in one run"
    )
    parser.add_argument(
        "op",
        nargs="?",
        choices=[*ALL, *WHOLE, "all"],
        default="all",
        help="memory: of attention over 65536 tokens, beyond inputs and output; models: T5 and MiniLM; "
        "torch: PyTorch models with headlane.torch; mpi: many ranks beside many threads; none of these is part of all",
    )
    parser.add_argument("--quick", action="store_true", help="few cases, few rounds: to see that it works")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument(
        "--threads", type=counts, default=sorted({1, cores}), metavar="N,…", help="default: 1 and all cores"
    )
    parser.add_argument(
        "--only",
        default="",
        metavar="NAME,…",
        help="contenders whose name has one of these in it; =NAME is the whole name",
    )
    parser.add_argument(
        "--case",
        type=re.compile,
        metavar="REGEX",
        help="cases whose label, or part of the table and label as in 'decode 512 keys', matches",
    )
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="the results of all operations; default: build/peers/OP.json each",
    )
    parser.add_argument("--programs", type=Path, required=True, help=argparse.SUPPRESS)  # from ./dev
    return parser.parse_args()


def counts(text: str) -> list[int]:
    threads = [int(word) for word in text.split(",")]
    if min(threads) < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return sorted(set(threads))


def main() -> int:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the workers are ended
    with ExitStack() as stack:
        session = Session(options, stack)
        machine = record.machine(session.about, session.probes)
        table.print_machine(machine)
        if options.op in WHOLE:
            print(f"\nwrote {WHOLE[options.op](session, machine)}")
            return 0
        files: dict[Path, dict] = {}
        for op in operations(options):
            workers, rows = session.run(op)
            path = options.json or Path("build/peers") / f"{op}.json"
            document = files.setdefault(path, record.document(session.about["version"], machine))
            failures, session.bench.failures = session.bench.failures, []
            record.add(document, workers, rows, failures)
            table.print_results(document, op)
            table.print_failures(failures)
            record.write(document, path)
        print("\n" + "\n".join(f"wrote {path}" for path in files))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except Failure as failure:
        sys.exit(f"peers: {failure}")
