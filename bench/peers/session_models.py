"""`./dev peers models`: whole models, one library in a process, all others stopped. See README.md."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from progress import Progress

from . import record
from .cases.models import ALL, T5_SHAPES
from .contenders import models as contenders
from .measure.models import LOADS, PLAN, QUICK, TIMEOUT, ModelBench
from .table import models as models_table
from .table import operations as table
from .workers.process import Failure, Worker


class Models:
    """Uses of the session its options, the probes of the machine's limits, and its folder. Behind the cases
    comes something else, which --case takes by its name."""

    every_case, every_contender, bench_type = ALL, staticmethod(contenders.every), ModelBench
    last = "load"

    def __init__(self, session) -> None:
        self.session, self.options = session, session.options
        self.bench = self.bench_type(QUICK if self.options.quick else PLAN, session.bench.folder)
        self.contenders = session.only(self.every_contender())
        self.with_last = not self.options.case or bool(self.options.case.search(self.last))
        self.progress = Progress(len(self.cases()) + self.with_last * len(self.options.threads))

    def cases(self) -> list:
        every, pattern = self.every_case, self.options.case
        if pattern:
            return [c for c in every if pattern.search(f"{c.op} {c.label}") or pattern.search(c.label)]
        return [case for case in every if case.quick or not self.options.quick]

    def start(self, op: str, threads: int, stack: ExitStack) -> list[Worker]:
        workers = []
        for contender in self.contenders:
            if op not in contender.ops:
                continue
            try:
                worker = Worker(contender, threads, TIMEOUT)
            except Failure as failure:
                self.bench.fail(contender.title, str(failure))
                continue
            stack.callback(worker.end)
            workers.append(worker)
        return workers

    def run(self, document: dict) -> None:
        """A process for each case and number of threads: of large models not all at once."""
        for case in self.cases():
            self.progress.case(f"{case.op} {case.label}")
            self.progress.step("its model and inputs")
            try:
                self.bench.load(case)
            except Failure as failure:
                self.bench.fail("all", str(failure), case)
                continue
            for threads in self.options.threads:
                self.progress.step(f"threads: {threads}")
                with ExitStack() as stack:
                    workers = self.start(case.op, threads, stack)
                    rows = self.bench.measure(workers, self.session.probes[threads])
                    record.add(
                        document, workers, [{**row, "against": self.bench.from_whom} for row in rows], []
                    )

    def run_loads(self) -> list[dict]:
        """How long the largest T5 takes to load, with one thread and with all."""
        model = "t5-small" if self.options.quick else list(T5_SHAPES)[-1]
        rows = []
        for threads in self.options.threads:
            self.progress.case(f"loading {model}, threads: {threads}")
            with ExitStack() as stack:
                workers = self.start("t5", threads, stack)
                rows += self.bench.load_times(model, workers, 2 if self.options.quick else LOADS)
        return rows


def measure(session, machine: dict) -> Path:
    models = Models(session)
    document = record.document(session.about["version"], machine)
    models.run(document)
    document["loading"] = models.run_loads() if models.with_last else []
    models.progress.clear()
    document["failures"] = models.bench.failures
    models_table.print_results(document)
    table.print_failures(document["failures"])
    return record.write(document, session.options.json or Path("build/peers/models.json"))
