"""The tables of PyTorch models: for each kind of use one of float32, and one of weights of fewer bits."""

from __future__ import annotations

from rich.table import Table

from ..cases.pytorch import SHAPES
from .models import OURS, best, is_rounded, spread, tokens_per_second
from .operations import _percent, _times, console, digits, share

UNITS = {
    "encode": "Encoders, batch x tokens: ms",
    "prefill": "Decoders, a prompt's batch x tokens: ms",
    "generate": "Decoders, greedy, from a prompt of 512 tokens: new tokens/s behind the first",
}
LIMITS = {
    "encode": "the FMA peak",
    "prefill": "the FMA peak",
    "generate": "reading weights as stored and cache",
}
ERRORS = ("largest error in eps of a row's root mean square", "smallest cosine")


class Line:
    """One case with one number of threads."""

    def __init__(self, rows: list[dict], wrong: set[str] | frozenset[str] = frozenset()) -> None:
        self.by_name = {row["contender"]: row for row in rows}
        self.wrong = wrong
        peers = [row for row in rows if not row["contender"].startswith(OURS) and not is_rounded(row)]
        self.best = best(peers)

    def ratio(self, name: str, against: str = "") -> float | None:
        """How many times as fast as another, or as the best of PyTorch in float32."""
        ours, other = self.by_name.get(name), self.by_name.get(against) if against else self.best
        return other["seconds"] / ours["seconds"] if ours and other else None

    def share(self, name: str) -> float | None:
        return share(self.by_name.get(name))

    def cell(self, name: str) -> str:
        """Speed, spread, error, share of the limit, and the ratio to the best of PyTorch in float32."""
        row = self.by_name.get(name)
        if row is None:
            return "wrong" if name in self.wrong else "n/a"
        speed = digits(tokens_per_second(row) if row["op"] == "generate" else 1000 * row["seconds"])
        off = f"cos {row['cosine']:.4f}" if is_rounded(row) else f"{row['error']:.0f}ε"
        other = f" ({100 * row['other']:.1f} % other)" if row.get("other") and not is_rounded(row) else ""
        return f"{speed} {spread(row)} {off}{other} {_percent(share(row))} {_times(self.ratio(name))}"


def lines(document: dict, op: str) -> dict[tuple, Line]:
    """Also those in which everybody was wrong."""
    grouped: dict[tuple, list[dict]] = {}
    wrong: dict[tuple, set[str]] = {}
    for row in document["results"]:
        if row["op"] == op:
            grouped.setdefault((row["case"], row["threads"]), []).append(row)
    for failure in document["failures"]:
        kind, _, case = (failure["case"] or "").partition(" ")
        if kind == op and failure["reason"].startswith("wrong"):
            wrong.setdefault((case, failure["threads"]), set()).add(failure["contender"])
    keys = dict.fromkeys([*grouped, *wrong])
    return {key: Line(grouped.get(key, []), wrong.get(key, frozenset())) for key in keys}


def print_results(document: dict) -> None:
    for op, unit in UNITS.items():
        shown = lines(document, op)
        if not shown:
            continue
        names = list(dict.fromkeys(name for line in shown.values() for name in [*line.by_name, *line.wrong]))
        for low, error in enumerate(ERRORS):
            columns = [name for name in names if is_rounded({"contender": name}) == bool(low)]
            columns.sort(key=lambda name: not name.startswith(OURS))
            if columns:
                kind = "weights of fewer bits" if low else "float32"
                title = f"{unit}; {error}; share of {LIMITS[op]}; speed / best of PyTorch in float32. {kind}"
                console.print(_table(title, shown, columns))
    _print_prepared(document)
    if document["optimise"]:
        console.print(_optimise(document["optimise"]))
    if document["call"]:
        console.print(_call(document["call"]))


def _table(title: str, shown: dict[tuple, Line], names: list[str]) -> Table:
    made = new_table(title, ["case", "threads", *names])
    for (case, threads), line in shown.items():
        made.add_row(case, str(threads), *(line.cell(name) for name in names))
    return made


def new_table(title: str, heads: list[str], left: int = 1) -> Table:
    """The first columns are of text."""
    made = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for number, head in enumerate(heads):
        made.add_column(head, justify="left" if number < left else "right", no_wrap=number == 0)
    return made


def _print_prepared(document: dict) -> None:
    """How long it takes to change a model that is loaded: with compiling it, where that is done."""
    rows = [row for row in document["results"] if "prepared" in row]
    names = [
        name
        for name in dict.fromkeys(row["contender"] for row in rows)
        if any(row["prepared"] > 0.01 for row in rows if row["contender"] == name)
    ]
    if not names:
        return
    made = new_table("Preparing a loaded model, with compiling it: s", ["case", "threads", *names])
    grouped: dict[tuple, dict[str, float]] = {}
    for row in rows:
        key = f"{row['op']} {row['case']}", row["threads"]
        grouped.setdefault(key, {})[row["contender"]] = row["prepared"]
    for (case, threads), taken in grouped.items():
        cells = [f"{taken[name]:.2f}" if name in taken else "-" for name in names]
        made.add_row(case, str(threads), *cells)
    console.print(made)


def _optimise(rows: list[dict]) -> Table:
    title = "headlane.torch.optimize, inplace and with release: s; MiB beyond those before the model"
    heads = ["model", "weights", "contender", "threads", "time", "eager", "eager, peak", "optimised", "peak"]
    made = new_table(title, heads, left=3)
    for row in rows:
        sizes = [f"{row[name] / (1 << 20):.0f}" for name in ("eager", "eager_peak", "optimised", "peak")]
        source = "in the mapped file" if row["loaded"] else "in memory"
        cells = [SHAPES[row["model"]].title, source, row["contender"], str(row["threads"])]
        made.add_row(*cells, f"{row['seconds']:.3f}", *sizes)
    return made


def _call(rows: list[dict]) -> Table:
    made = new_table("A call of nn.Linear(8, 8) with one row: µs", ["contender", "threads", "µs"])
    for row in rows:
        made.add_row(row["contender"], str(row["threads"]), f"{1e6 * row['seconds']:.2f}")
    return made
