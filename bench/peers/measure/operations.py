"""Measures one case: checks every result, then times every contender once per round, beside the limit."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..cases.case import ERROR_UNIT, Case, Phase
from ..contenders.contender import SLOW
from ..truth import operations as truth
from ..workers.process import Failure, Worker


@dataclass(frozen=True)
class Plan:
    rounds: int = 9
    sample: float = 0.03  # seconds; a call that takes longer is a sample of its own
    slow_rounds: int = 3  # of the scalar build, whose figure need not be sharp
    budget: float = 9  # seconds for all rounds of one case and number of threads, which limits their number
    least: int = 2  # rounds at least


LARGEST = 256 << 20  # bytes: a buffer no cache holds, whose rate counts for larger ones too
LONG = 1e11  # floating-point operations: no call of so many is so short that a sample would need several
QUICK = Plan(rounds=3, sample=0.01, slow_rounds=1, budget=3, least=1)


@dataclass
class Entry:
    worker: Worker
    error: float
    calls: int = 1
    took: float = 0  # seconds of one call before the rounds
    cosine: float | None = None  # the smallest, to the reference: of vectors from rounded weights
    memory: int = 0  # bytes that were resident in it at most, beyond those before
    more: dict[str, float] = field(default_factory=dict)  # for the row
    seconds: list[float] = field(default_factory=list)  # of one call


class Probe:
    """The machine's limits, measured by headlane's worker: operations or bytes per second."""

    def __init__(self, worker: Worker, isas: list[str]) -> None:
        self.worker, self.isas = worker, isas

    def rate(self, kind: str, isa: str = "", size: int = 0) -> float:
        return float(self.worker.ask("measure", kind=kind, isa=isa, bytes=size, threads=self.worker.threads))

    def limit(self, kind: str, isa: str, work: float) -> float:
        """Seconds that so many operations, or bytes, take at least."""
        if kind == "fma":
            return work / self.rate("fma", isa)
        return work / self.rate(kind, size=min(int(work), LARGEST))

    def roofline(self, phases: tuple[Phase, ...], isa: str) -> tuple[float, float]:
        """Seconds that the phases take at least: operations and memory of each overlap. And the part of them that is
        memory's."""
        fma, whole, memory = self.rate("fma", isa), 0.0, 0.0
        for phase in phases:
            computing = (phase.flops + 2 * phase.steps) / fma
            # A copy reads as much as it writes.
            moving = self._read(max(0, phase.read - phase.written), phase.buffer)
            moving += self.limit("copy", "", phase.written) if phase.written else 0
            whole += max(computing, moving)
            memory += moving if moving > computing else 0
        return whole, memory

    def _read(self, size: float, buffer: float) -> float:
        if not size:
            return 0
        return size / self.rate("read", size=min(int(buffer or size), LARGEST))

    def summary(self, reads: tuple[int, ...], copies: tuple[int, ...], repetitions: int = 5) -> list[dict]:
        """The limits of every ISA, for the record."""

        def median(*arguments) -> float:
            return statistics.median(self.rate(*arguments) for _ in range(repetitions)) * 1e-9

        memory = {
            "read_gbps": {str(size): round(median("read", "", size), 2) for size in reads},
            "copy_gbps": {str(size): round(median("copy", "", size), 2) for size in copies},
        }
        threads = self.worker.threads
        return [
            {"isa": isa, "threads": threads, "fma_gflops": round(median("fma", isa), 2), **memory}
            for isa in self.isas
        ]


class Bench:
    """One case after another, all in one folder for inputs and results."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.folder, self.rounds = plan, folder, plan.rounds
        self.failures: list[dict] = []

    def load(self, case: Case) -> None:
        given = truth.inputs(case)
        truth.write(given, self.folder)
        self.case, self.truth = case, truth.Truth(case, given)

    def measure(self, workers: list[Worker], probe: Probe) -> list[dict]:
        """The rows of the results, for the case that was loaded and workers of one number of threads."""
        entries = [entry for worker in workers if (entry := self._attempt(worker, self._checked, worker))]
        entries = [entry for entry in entries if self._attempt(entry.worker, self._calibrate, entry)]
        limits: dict[tuple, list[float]] = {self._limit(entry, probe): [] for entry in entries}
        isas = {self._isa(entry, probe) for entry in entries if self.case.phases}
        rooflines: dict[str, list[tuple[float, float]]] = {isa: [] for isa in isas}
        self.rounds = self._affordable(entries)
        for number in range(self.rounds):
            for isa, seconds in rooflines.items():
                seconds.append(probe.roofline(self.case.phases, isa))
            for (isa, work), seconds in limits.items():
                seconds.append(probe.limit(self.case.limit, isa, work))
            for entry in turns(entries, number):
                if number < self._rounds(entry) and entry.worker.alive:
                    self._attempt(entry.worker, self._time, entry)
        for worker in workers:
            self._attempt(worker, worker.ask, "release")
        return [
            self._row(entry, limits[self._limit(entry, probe)], rooflines.get(self._isa(entry, probe)))
            for entry in entries
            if len(entry.seconds) == self._rounds(entry)  # else it failed on the way
        ]

    def first_call(self, worker: Worker) -> list[dict]:
        """A row, or none, of the call whose result is checked: its time, and the memory that it took."""
        entry = self._attempt(worker, self._checked, worker)
        if entry is None:
            return []
        entry.seconds.append(entry.took)
        return [{**self._row(entry, [0.0]), "memory": entry.memory}]

    def _attempt(self, worker: Worker, action, *arguments):
        """What action(*arguments) gives, or None if the worker failed, which is noted."""
        try:
            return action(*arguments) if worker.alive else None
        except Failure as failure:
            self.fail(worker.contender.title, str(failure), self.case, worker.threads)
            return None

    def fail(self, title: str, reason: str, case: Case | None = None, threads: int | None = None) -> None:
        label = f"{case.op} {case.label}" if case else None
        self.failures.append({"contender": title, "case": label, "threads": threads, "reason": reason})

    def _checked(self, worker: Worker) -> Entry:
        shape = {
            key: int(value) if isinstance(value, bool) else "none" if value is None else value
            for key, value in self.case.shape.items()
        }
        worker.ask("prepare", op=self.case.worker_op, folder=self.folder, softcap=truth.SOFTCAP, **shape)
        output = self.folder / "output"
        took, memory = (float(word) for word in worker.ask("run", output=output).split())
        error = self.truth.error(np.fromfile(output, np.float32).reshape(truth.output_shape(self.case)))
        if not error <= self.case.tolerance:  # so written for NaN
            raise Failure(
                f"wrong: error {error:.3g} {ERROR_UNIT[self.case.op]}, allowed {self.case.tolerance:.3g}"
            )
        return Entry(worker, error, took=took, memory=int(memory))

    def _calibrate(self, entry: Entry) -> int:
        """As many calls as fill a sample."""
        if self.case.flops > LONG:
            return 1
        while True:
            entry.took = self._sample(entry)
            wanted = math.ceil(self.plan.sample / entry.took)
            if entry.calls * 2 >= wanted:
                entry.calls = wanted
                return wanted
            entry.calls = min(wanted, entry.calls * 20)

    def _affordable(self, entries: list[Entry]) -> int:
        """The number of rounds within the plan's budget. Slow builds, which have few rounds anyway, do not
        count."""
        once = sum(e.took * e.calls for e in entries if e.worker.contender.isa not in SLOW)
        return min(self.plan.rounds, max(self.plan.least, int(self.plan.budget / max(once, 1e-9))))

    def _time(self, entry: Entry) -> None:
        entry.seconds.append(self._sample(entry))

    def _sample(self, entry: Entry) -> float:
        """Seconds of one call. The worker stood still: its caches are cold and its threads asleep. So a tenth
        of the calls go before, but for those so long that it does not matter."""
        warm = 0 if entry.took > 0.1 else max(1, entry.calls // 10)
        return float(entry.worker.ask("time", warm=warm, calls=entry.calls)) / entry.calls

    def _limit(self, entry: Entry, probe: Probe) -> tuple[str, float]:
        """The instruction set whose FMA peak is the limit, the widest for peers, and the operations of a call;
        "" and the bytes if memory is the limit."""
        if self.case.limit == "fma":
            return self._isa(entry, probe), self.case.flops
        return "", self.case.limit_bytes

    def _isa(self, entry: Entry, probe: Probe) -> str:
        return entry.worker.about.get("isa", probe.isas[0])

    def _rounds(self, entry: Entry) -> int:
        slow = entry.worker.contender.isa in SLOW
        return min(self.rounds, self.plan.slow_rounds) if slow else self.rounds

    def _row(
        self, entry: Entry, limits: list[float], rooflines: list[tuple[float, float]] | None = None
    ) -> dict:
        case, worker = self.case, entry.worker
        low, median, high = (float(x) for x in np.percentile(entry.seconds, [25, 50, 75]))
        return {
            "op": case.op,
            "case": case.label,
            "shape": case.shape,
            "threads": worker.threads,
            "contender": worker.contender.name,
            "isa": worker.about.get("isa"),
            "seconds": median,
            "low": low,
            "high": high,
            "samples": len(entry.seconds),
            "calls_per_sample": entry.calls,
            "flops": case.flops,
            "bytes": case.bytes,
            "limit": {"kind": case.limit, "seconds": statistics.median(limits)},
            "roofline": median_roofline(rooflines) if rooflines else None,
            "error": entry.error,
            "error_unit": ERROR_UNIT[case.op],
            "cosine": entry.cosine,
            "base": case.base or None,
            **entry.more,
        }


def median_roofline(measured: list[tuple[float, float]]) -> dict:
    """Of rounds, and what most of it is: operations or memory."""
    whole, memory = (statistics.median(column) for column in zip(*measured))
    return {"kind": "memory" if memory > whole / 2 else "fma", "seconds": whole}


def turns(entries: list[Entry], number: int) -> list[Entry]:
    """The order of a round: each round another one begins, and every second round runs backwards."""
    if not entries:
        return []
    first = number % len(entries)
    order = entries[first:] + entries[:first]
    return order[::-1] if number % 2 else order
