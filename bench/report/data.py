"""The measurements: rows of headlane and of its peers, comparisons, limits. Everything that is plotted
comes from here; nothing here depends on plots or files (load.py)."""

import math
import re
from dataclasses import dataclass, field

ROUNDED = ("int8", "int4", "bfloat16")  # weights of fewer bits, at the end of a contender's name
ISAS = ("avx512", "avx2", "neon", "scalar", "portable")  # widest first


@dataclass(frozen=True)
class Operation:
    """How an operation is called and what its speed counts."""

    title: str
    unit: str
    amount: str  # what one call does: "flops", "bytes", "elements", "tokens" or "sentences"
    case: str  # what one case is called

    @property
    def scale(self):
        """The amount that is 1 in the unit."""
        return 1 if self.amount in ("tokens", "sentences") else 1e9


OPERATIONS = {
    "gemm": Operation("GEMM", "GFLOP/s", "flops", "shape"),
    "lowbit": Operation("Products by weights of fewer bits", "GFLOP/s", "flops", "shape"),
    "softmax": Operation("Softmax", "10⁹ elements/s", "elements", "shape"),
    "attention": Operation("Attention", "GFLOP/s", "flops", "case"),
    "attention_options": Operation("Attention with options", "GFLOP/s", "flops", "case"),
    "decode": Operation("Decoding", "GB/s", "bytes", "case"),
    "norms": Operation("Norms and activations", "10⁹ elements/s", "elements", "shape"),
    "layers": Operation("Layers", "GFLOP/s", "flops", "layer"),
    "t5": Operation("T5", "tokens/s", "tokens", "case"),
    "minilm": Operation("MiniLM", "tokens/s", "tokens", "shape"),
    "sentences": Operation("MiniLM on sentences", "sentences/s", "sentences", "case"),
    "encode": Operation("Encoders of PyTorch", "GFLOP/s", "flops", "case"),
    "prefill": Operation("Decoders of PyTorch, a prompt", "GFLOP/s", "flops", "case"),
    "generate": Operation("Decoders of PyTorch, new tokens", "tokens/s", "tokens", "case"),
}


def operation(op):
    return OPERATIONS.get(op, Operation(op.replace("_", " ").capitalize(), "GFLOP/s", "flops", "case"))


def case_label(case):
    return re.sub(r"(?<=\d)x(?=\d|L)", "×", case)


@dataclass(frozen=True)
class Row:
    """One contender on one case with one number of threads."""

    op: str
    case: str
    threads: int
    contender: str
    isa: str | None
    seconds: float
    low: float
    high: float
    shape: dict = field(hash=False, compare=False, default_factory=dict)
    samples: int | None = None
    calls: int | None = None
    flops: float | None = None
    bytes: float | None = None
    limit: float | None = None  # seconds
    limit_kind: str | None = None
    roofline: float | None = None  # seconds that all of its work takes at least
    error: float | None = None  # in error_unit, eps = 2^-24
    error_unit: str | None = None
    prepacked: bool = False
    route: str | None = None  # what it is called from
    memory: int | None = None  # bytes beyond inputs and output

    @property
    def label(self):
        return case_label(self.case)

    @property
    def headlane(self):
        return self.contender.startswith("headlane")

    @property
    def rounded(self):
        """With weights of fewer bits: less work, and other results."""
        return self.contender.endswith(ROUNDED)

    @property
    def amount(self):
        what = operation(self.op).amount
        if what == "tokens":
            return self.shape["batch"] * self.shape["tokens" if "tokens" in self.shape else "length"]
        if what == "sentences":
            return self.shape["batch"]
        if what == "elements" and "rows" in self.shape:
            return self.shape["rows"] * self.shape["columns"]
        return (self.bytes if what == "bytes" else self.flops) or self.flops or self.bytes or 0

    def speed_in(self, seconds):
        """The speed of a call that takes this long, in the unit of the operation."""
        return self.amount / seconds / operation(self.op).scale

    @property
    def speed(self):
        return self.speed_in(self.seconds)

    @property
    def share(self):
        """Of the machine's limit: 1 is all of it."""
        return self.limit / self.seconds if self.limit else None

    @property
    def gflops(self):
        return self.flops / self.seconds / 1e9 if self.flops else None

    @property
    def intensity(self):
        """Floating-point operations per byte that has to move."""
        return self.flops / self.bytes if self.flops and self.bytes else None


@dataclass
class Comparison:
    """headlane and its peers on one case with one number of threads. Peers that do less in the time
    measured are kept apart: those whose weights were packed beforehand, and those that round them."""

    ours: Row
    peers: list
    prepacked: list = field(default_factory=list)  # peers
    ours_prepacked: Row | None = None

    @property
    def best(self):
        return min(self.peers, key=lambda row: row.seconds)

    @property
    def ratio(self):
        """How many times as fast as the best peer."""
        return self.best.seconds / self.ours.seconds

    @property
    def prepacked_ratio(self):
        if not self.prepacked or self.ours_prepacked is None:
            return None
        return min(row.seconds for row in self.prepacked) / self.ours_prepacked.seconds

    @property
    def outcome(self):
        """Level means that the quartiles overlap: this run cannot tell who is faster."""
        if self.ours.high < self.best.low:
            return "ahead"
        return "behind" if self.ours.low > self.best.high else "level"


def same_route(own, peers):
    """Of headlane's rows the one that is called as the fastest peer is, else the first; None without rows."""
    best = min(peers, key=lambda row: row.seconds, default=None)
    return min(own, key=lambda row: best is not None and row.route != best.route, default=None)


def geometric_mean(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def latest(rows):
    """Each measurement once: the last of those with the same contender, case and threads."""
    return list({(row.op, row.case, row.threads, row.contender, row.isa): row for row in rows}.values())


class Report:
    """All runs together. Of a measurement that several files contain the latest counts."""

    def __init__(self, runs):
        self.runs = sorted(runs, key=lambda run: run["date"])
        rows = [row for run in self.runs for row in run["rows"]]
        self.memory = latest(row for row in rows if row.op == "memory")
        rows = [row for row in rows if row.op != "memory"]
        # The cost of options is relative to cases that were timed again beside them; these count
        # once.
        twice = {row.case for row in rows if row.op == "attention"}
        rows = [row for row in rows if row.op != "attention_options" or row.case not in twice]
        self.rows = latest(rows)
        loading = [entry for run in self.runs for entry in run.get("loading") or []]
        self.loading = list(
            {(entry["model"], entry["contender"], entry["threads"]): entry for entry in loading}.values()
        )

    def ops(self):
        known = {op: place for place, op in enumerate(OPERATIONS)}
        return sorted({row.op for row in self.rows}, key=lambda op: (known.get(op, len(known)), op))

    def threads(self, op=None):
        return sorted({row.threads for row in self.rows if op in (None, row.op)})

    def isas(self):
        return [isa for isa in ISAS if any(row.headlane and row.isa == isa for row in self.rows)]

    def select(self, op, threads=None):
        """The rows to compare: every peer, and headlane with the widest instruction set that was measured."""
        rows = [row for row in self.rows if row.op == op and threads in (None, row.threads)]
        return [row for row in rows if not row.headlane or row.isa == self._widest(row)]

    def _widest(self, row):
        isas = {other.isa for other in self.rows if other.headlane and other.contender == row.contender}
        return next((isa for isa in ISAS if isa in isas), row.isa)

    def comparisons(self, op, threads):
        """One for each case that both headlane (from C++, if it was measured) and a peer ran."""
        rows = self.select(op, threads)
        result = []
        for case in dict.fromkeys(row.case for row in rows):
            here = [row for row in rows if row.case == case]
            ours = sorted(
                (row for row in here if row.headlane and not (row.prepacked or row.rounded)),
                key=lambda row: row.contender != "headlane",
            )
            peers = [row for row in here if not (row.headlane or row.prepacked or row.rounded)]
            prepacked = [row for row in here if not row.headlane and row.prepacked]
            if ours and peers:
                own = [row for row in here if row.headlane and row.prepacked]
                result.append(Comparison(ours[0], peers, prepacked, same_route(own, prepacked)))
        return result

    def limits(self):
        """{(isa, threads): entry}. Every run measured them; the highest is what the machine can do."""
        result = {}
        for run in self.runs:
            for entry in run["machine"]["limits"]:
                known = result.setdefault(
                    (entry["isa"], entry["threads"]), {"fma_gflops": 0, "read_gbps": {}, "copy_gbps": {}}
                )
                known["fma_gflops"] = max(known["fma_gflops"], entry["fma_gflops"])
                for kind in ("read_gbps", "copy_gbps"):
                    for size, rate in (entry.get(kind) or {}).items():
                        known[kind][int(size)] = max(known[kind].get(int(size), 0), rate)
        return result

    def failures(self):
        """Who could not be measured, and why; each once."""
        entries = [entry for run in self.runs for entry in run.get("failures") or []]
        return list(
            {(entry["contender"], entry.get("case"), entry["reason"]): entry for entry in entries}.values()
        )

    def heads(self):
        """What was run where: one entry for runs that differ in their time only, with first and last time."""
        result = {}
        for run in self.runs:
            what = {name: run["machine"].get(name) for name in ("cpu", "cores", "os", "compiler")}
            what |= {name: run.get(name) for name in ("headlane", "commit", "modified")}
            result.setdefault(tuple(what.items()), []).append(run["date"])
        return [{**dict(key), "first": min(dates), "last": max(dates)} for key, dates in result.items()]

    def contenders(self):
        """In the order of the files, headlane first; the same contender with the same version once."""
        seen = {}
        for run in self.runs:
            for entry in run["contenders"]:
                key = entry["name"], entry.get("version"), entry.get("isa")
                seen.setdefault(key, entry)
        return sorted(seen.values(), key=lambda entry: not entry["name"].startswith("headlane"))
