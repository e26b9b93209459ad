"""`./dev peers torch`: headlane.torch beside PyTorch's own ways to run a model. See README.md."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from . import record
from .cases.pytorch import ALL
from .contenders import pytorch as contenders
from .measure.models import LOADS
from .measure.pytorch import PytorchBench
from .session_models import Models
from .table import operations as table
from .table import pytorch as pytorch_table
from .table import pytorch_targets

SMALL, LARGE = "bert-base", "llama"


class PytorchModels(Models):
    every_case, every_contender, bench_type = ALL, staticmethod(contenders.every), PytorchBench
    last = "optimise"

    def run_last(self) -> dict[str, list[dict]]:
        """Optimising with each number of threads, which the memory does not depend on; calls of a small layer."""
        rounds = 2 if self.options.quick else LOADS
        optimise, call = [], []
        for threads in self.options.threads:
            self.progress.case(f"optimising models, calling a layer, threads: {threads}")
            jobs = [(SMALL, False, rounds)]
            if threads == self.options.threads[-1] and not self.options.quick:
                jobs += [(SMALL, True, 1), (LARGE, False, 1), (LARGE, True, 1)]
            for model, loaded, rounds_of_it in jobs:
                for contender in self.contenders:
                    if "optimise" in contender.ops:
                        self.progress.step(f"{model}, {contender.title}")
                        optimise += self.bench.optimise(contender, threads, model, loaded, rounds_of_it)
            with ExitStack() as stack:
                call += self.bench.call_times(self.start("call", threads, stack))
        return {"optimise": optimise, "call": call}


def measure(session, machine: dict) -> Path:
    models = PytorchModels(session)
    document = record.document(session.about["version"], machine)
    models.run(document)
    document |= models.run_last() if models.with_last else {"optimise": [], "call": []}
    models.progress.clear()
    document["failures"] = models.bench.failures
    pytorch_table.print_results(document)
    pytorch_targets.print_targets(document)
    table.print_failures(document["failures"])
    return record.write(document, session.options.json or Path("build/peers/torch.json"))
