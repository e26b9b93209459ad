"""headlane beside other libraries, in one run: `./dev peers`. See README.md."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path

from . import models, record, table
from .cases import ALL, MEMORY, Case
from .contenders import Contender, every
from .measure import QUICK, Bench, Plan, Probe
from .workers import Failure, Worker


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev peers", description="headlane beside other libraries, in one run"
    )
    parser.add_argument(
        "op",
        nargs="?",
        choices=[*ALL, "memory", "models", "all"],
        default="all",
        help="memory: what attention over 65536 tokens needs besides its inputs and output; models: T5 and MiniLM; neither is part of all",
    )
    parser.add_argument("--quick", action="store_true", help="few cases, few rounds: to see that it works")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument(
        "--threads", type=counts, default=sorted({1, cores}), metavar="N,…", help="default: 1 and all cores"
    )
    parser.add_argument(
        "--only", default="", metavar="NAME,…", help="contenders whose name has one of these in it"
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


def chosen_cases(options: argparse.Namespace, op: str) -> list[Case]:
    cases = [
        c
        for c in ALL[op]
        if not options.case or options.case.search(f"{c.op} {c.label}") or options.case.search(c.label)
    ]
    return [case for case in cases if case.quick] if options.quick and not options.case else cases


def chosen(contenders: list[Contender], only: str) -> list[Contender]:
    words = [word.strip().lower() for word in only.split(",") if word.strip()]
    return [c for c in contenders if not words or any(word in c.title.lower() for word in words)]


def status(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


class Session:
    """The probes, which live as long as the run, and one operation after another."""

    def __init__(self, options: argparse.Namespace, stack: ExitStack) -> None:
        self.options, self.stack = options, stack
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="headlane-peers-"))
        self.bench = Bench(QUICK if options.quick else Plan(), Path(folder))
        headlane = every(options.programs, [])[0]
        self.probes = {
            threads: self._end_with(stack, Worker(headlane, threads))
            for threads in sorted({1, *options.threads})
        }
        self.about = self.probes[1].about
        isas = [isa for isa in self.about["available"].split() if isa != "portable"]
        self.probes = {threads: Probe(worker, isas) for threads, worker in self.probes.items()}
        self.contenders = self.only(every(options.programs, isas))

    def only(self, contenders: list[Contender]) -> list[Contender]:
        return chosen(contenders, self.options.only)

    def status(self, text: str) -> None:
        status(text)

    @staticmethod
    def _end_with(stack: ExitStack, worker: Worker) -> Worker:
        stack.callback(worker.end)
        return worker

    def start(self, cases: list[Case], stack: ExitStack) -> list[Worker]:
        """A worker for each contender and number of threads that any of the cases needs."""
        workers = []
        for contender in self.contenders:
            for threads in self.options.threads:
                if not any(contender.takes(case, threads) for case in cases):
                    continue
                status(f"starting {contender.title}, threads: {threads}")
                try:
                    workers.append(self._end_with(stack, Worker(contender, threads)))
                except Failure as failure:
                    self.bench.fail(contender.title, str(failure))
                    break
        return workers

    def revive(self, workers: list[Worker]) -> None:
        """One that died in the case before may do better in this one."""
        for worker in workers:
            if not worker.alive:
                worker.end()
                with suppress(Failure):  # it is left out then, and that it died was noted
                    worker.start()

    def run(self, op: str) -> tuple[list[Worker], list[dict]]:
        cases, rows = chosen_cases(self.options, op), []
        with ExitStack() as stack:
            workers = self.start(cases, stack)
            for case in cases:
                status(f"{case.op} {case.label}")
                self.bench.load(case)
                self.revive(workers)
                for threads in self.options.threads:
                    able = [w for w in workers if w.threads == threads and w.contender.takes(case, threads)]
                    status(f"{case.op} {case.label}, threads: {threads}")
                    rows += self.bench.measure(able, self.probes[threads])
        status("")
        return workers, rows

    def run_memory(self) -> list[dict]:
        """The first call in a process of its own, for headlane and for PyTorch: others may take memory for all scores."""
        rows = []
        for case in MEMORY:
            self.bench.load(case)
            for contender in self.contenders:
                if contender.title not in ("headlane", "PyTorch SDPA"):
                    continue
                for threads in self.options.threads:
                    status(f"memory {case.label}, {contender.title}, threads: {threads}")
                    with ExitStack() as stack:
                        try:
                            worker = self._end_with(stack, Worker(contender, threads, timeout=600))
                        except Failure as failure:
                            self.bench.fail(contender.title, str(failure))
                            break
                        rows += self.bench.first_call(worker)
        status("")
        return rows


def measure_memory(session: Session, machine: dict) -> Path:
    document = record.document(session.about["version"], machine)
    record.add(document, [], session.run_memory(), session.bench.failures)
    table.print_memory(document)
    table.print_failures(session.bench.failures)
    return record.write(document, session.options.json or Path("build/peers/memory.json"))


def main() -> int:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the workers are ended
    with ExitStack() as stack:
        session = Session(options, stack)
        machine = record.machine(session.about, session.probes)
        table.print_machine(machine)
        if options.op in ("memory", "models"):
            measure = measure_memory if options.op == "memory" else models.measure
            print(f"\nwrote {measure(session, machine)}")
            return 0
        files: dict[Path, dict] = {}
        for op in ALL if options.op == "all" else [options.op]:
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
