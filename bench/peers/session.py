"""A run of `./dev peers`: the probes of the machine's limits, the workers, one operation after another."""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path

from progress import Progress

from . import record
from .cases.case import Case
from .cases.operations import ALL, MEMORY
from .contenders.contender import Contender
from .contenders.operations import every
from .measure.operations import QUICK, Bench, Plan, Probe
from .table import operations as table
from .workers.process import Failure, Worker


def operations(options: argparse.Namespace) -> list[str]:
    return list(ALL) if options.op == "all" else [op for op in ALL if op == options.op]


def chosen_cases(options: argparse.Namespace, op: str) -> list[Case]:
    cases = [
        c
        for c in ALL[op]
        if not options.case or options.case.search(f"{c.op} {c.label}") or options.case.search(c.label)
    ]
    return [case for case in cases if case.quick] if options.quick and not options.case else cases


def chosen(contenders: list[Contender], only: str) -> list[Contender]:
    words = [word.strip().lower() for word in only.split(",") if word.strip()]

    def matches(title: str) -> bool:
        return any(title == word[1:] if word.startswith("=") else word in title for word in words)

    return [c for c in contenders if not words or matches(c.title.lower())]


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
        self.progress = Progress(sum(len(chosen_cases(options, op)) for op in operations(options)))

    def only(self, contenders: list[Contender]) -> list[Contender]:
        return chosen(contenders, self.options.only)

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
                self.progress.step(f"starting {contender.title}, threads: {threads}")
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
                self.progress.case(f"{case.op} {case.label}")
                self.bench.load(case)
                self.revive(workers)
                for threads in self.options.threads:
                    able = [w for w in workers if w.threads == threads and w.contender.takes(case, threads)]
                    self.progress.step(f"threads: {threads}")
                    rows += self.bench.measure(able, self.probes[threads])
        self.progress.clear()
        return workers, rows

    def run_memory(self) -> list[dict]:
        """The first call, in a process of its own, of headlane and PyTorch: others may store all scores."""
        rows = []
        contenders = [c for c in self.contenders if c.title in ("headlane", "PyTorch SDPA")]
        self.progress = Progress(len(MEMORY) * len(contenders) * len(self.options.threads))
        for case in MEMORY:
            self.bench.load(case)
            for contender in contenders:
                for threads in self.options.threads:
                    self.progress.case(f"memory {case.label}, {contender.title}, threads: {threads}")
                    with ExitStack() as stack:
                        try:
                            worker = self._end_with(stack, Worker(contender, threads, timeout=600))
                        except Failure as failure:
                            self.bench.fail(contender.title, str(failure))
                            break
                        rows += self.bench.first_call(worker)
        self.progress.clear()
        return rows


def measure_memory(session: Session, machine: dict) -> Path:
    document = record.document(session.about["version"], machine)
    record.add(document, [], session.run_memory(), session.bench.failures)
    table.print_memory(document)
    table.print_failures(session.bench.failures)
    return record.write(document, session.options.json or Path("build/peers/memory.json"))
