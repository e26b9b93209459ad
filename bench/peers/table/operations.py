"""The tables: an operation has one for each route, where headlane stands beside those called the same way."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from ..contenders.contender import COMPILED, PYTHON

UNITS = {
    "gemm": "GFLOP/s",
    "lowbit": "GFLOP/s by weights of fewer bits",
    "softmax": "10⁹ elements/s",
    "attention": "GFLOP/s",
    "attention_options": "GFLOP/s; cost: time for as much work, against without",
    "decode": "GB/s of keys and values",
    "norms": "10⁹ elements/s",
    "layers": "GFLOP/s of the products",
}
OPS = {
    "gemm": ("gemm",),
    "lowbit": ("lowbit",),
    "softmax": ("softmax",),
    "attention": ("attention", "attention_options", "decode"),
    "layers": ("norms", "layers"),
}
PLAIN = ("headlane", "headlane (Python)")  # the contenders that peers are compared with

# The same when it goes into a file as when it goes to a wide screen.
console = Console(width=None if Console().is_terminal else 220, highlight=False)


def amount(row: dict) -> float:
    """What a call achieves, in the op's unit times seconds."""
    if row["op"] in ("softmax", "norms"):
        return row["shape"]["rows"] * row["shape"]["columns"] * 1e-9
    if row["op"] == "decode":
        return row["bytes"] * 1e-9
    return row["flops"] * 1e-9


def cell(row: dict | None) -> str:
    """Median, half the distance of the quartiles, error in its unit."""
    if row is None:
        return "-"
    spread = (row["high"] - row["low"]) / 2 / row["seconds"]
    return f"{digits(amount(row) / row['seconds'])} ±{100 * spread:.0f}% {row['error']:.1f}ε"


def digits(value: float) -> str:
    return f"{value:.0f}" if value >= 99.5 else f"{value:.1f}" if value >= 9.95 else f"{value:.2f}"


def ratio(ours: dict | None, peers: list[dict]) -> float | None:
    """How many times as fast headlane is as the best of them."""
    return min(row["seconds"] for row in peers) / ours["seconds"] if ours and peers else None


def share(row: dict | None) -> float | None:
    """Of the speed that the machine's limit allows."""
    return row["limit"]["seconds"] / row["seconds"] if row else None


def roofline_share(row: dict | None) -> float | None:
    """Of the speed that the roofline of all its work allows."""
    roofline = row.get("roofline") if row else None
    return roofline["seconds"] / row["seconds"] if roofline else None


def own_cell(row: dict | None) -> str:
    """With the share of the limit, that of its own instruction set."""
    return "-" if row is None else f"{cell(row)} {_percent(share(row))}"


def cost(row: dict | None, rows: list[dict]) -> float | None:
    """The time for the same amount of work, relative to the contender's time without the option. Both are taken
    relative to the limits measured beside them, so that a change of the clock does not count."""
    if row is None or not row.get("base"):
        return None
    for op in (row["op"], "attention"):
        key = (op, row["base"], row["threads"], row["contender"], row["isa"])
        for base in rows:
            if (base["op"], base["case"], base["threads"], base["contender"], base["isa"]) == key:
                return share(base) / share(row)
    return None


def gain(row: dict | None, rows: list[dict]) -> float | None:
    """How many times as fast as the same contender with one thread."""
    if row is None or row["threads"] == 1:
        return None
    names = ("op", "case", "contender", "isa")
    alone = (one for one in rows if one["threads"] == 1 and all(one[name] == row[name] for name in names))
    return next((one["seconds"] / row["seconds"] for one in alone), None)


class Line:
    """The rows of one case, number of threads and route."""

    def __init__(self, document: dict, rows: list[dict], route: str) -> None:
        kinds = {(c["name"], c["isa"]): c for c in document["contenders"]}
        mine = [row for row in rows if kinds[row["contender"], row["isa"]]["route"] == route]
        packed = {id(row): kinds[row["contender"], row["isa"]]["prepacked"] for row in mine}
        widest = document["machine"]["limits"][0]["isa"]
        self.rows = mine
        own = [row for row in mine if row["contender"].startswith("headlane")]
        self.headlane_prepacked = next((row for row in own if packed[id(row)]), None)
        headlane = [row for row in own if row["contender"] in PLAIN]
        self.headlane = next((row for row in headlane if row["isa"] == widest), None)
        self.own = {row["isa"]: row for row in headlane if row is not self.headlane}
        for row in own:
            if row["contender"] not in PLAIN and not packed[id(row)]:
                isa = "" if row["isa"] == widest else f" {row['isa']}"
                self.own[row["contender"] + isa] = row
        peers = [row for row in mine if not row["contender"].startswith("headlane")]
        self.plain = {row["contender"]: row for row in peers if not packed[id(row)]}
        self.prepacked = {row["contender"]: row for row in peers if packed[id(row)]}

    def ratio(self, kind: str) -> float | None:
        """Against the best of "plain" or "prepacked", each with headlane's own of the same kind."""
        ours = self.headlane_prepacked if kind == "prepacked" else self.headlane
        return ratio(ours, list(getattr(self, kind).values()))


def print_machine(machine: dict) -> None:
    console.print(f"{machine['cpu']}, {machine['cores']} cores, {machine['os']}, {machine['compiler']}")
    for threads in dict.fromkeys(limit["threads"] for limit in machine["limits"]):
        limits = [limit for limit in machine["limits"] if limit["threads"] == threads]
        peaks = ", ".join(f"{limit['isa']} {limit['fma_gflops']:.0f}" for limit in limits)
        memory = "; ".join(
            f"{kind} "
            + ", ".join(f"{_size(int(size))} {rate:.0f}" for size, rate in limits[0][f"{kind}_gbps"].items())
            for kind in ("read", "copy")
        )
        console.print(f"threads: {threads}: FMA {peaks} GFLOP/s; {memory} GB/s")
    if machine["busy"] > 0.05:
        console.print(
            f"[bold]Others use {100 * machine['busy']:.0f} % of the CPUs: expect figures that are off.[/bold]"
        )


def _size(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def print_results(document: dict, op: str) -> None:
    for part in OPS[op]:
        rows = [row for row in document["results"] if row["op"] == part]
        for route in (COMPILED, PYTHON):
            grouped: dict[tuple, list[dict]] = {}
            for row in rows:
                grouped.setdefault((row["case"], row["threads"]), []).append(row)
            lines = {key: Line(document, group, route) for key, group in grouped.items()}
            lines = {key: line for key, line in lines.items() if line.rows}
            if lines:
                console.print(
                    _table(f"{part}, called from {route}: {UNITS[part]}", lines, document["results"])
                )


def print_memory(document: dict) -> None:
    for row in document["results"]:
        s = row["shape"]
        given = (
            4 * s["batch"] * s["head_dim"] * (s["heads"] * s["q_length"] + s["kv_heads"] * s["kv_length"]) * 2
        )
        console.print(
            f"{row['case']}, {s['heads']} heads of {s['head_dim']}, {row['contender']}, threads: {row['threads']}: "
            f"{row['memory'] / (1 << 20):.1f} MiB at most besides {given >> 20} MiB of inputs and output; "
            f"{row['seconds']:.1f} s, {digits(amount(row) / row['seconds'])} GFLOP/s, {row['error']:.1f}ε"
        )


def print_failures(failures: list[dict]) -> None:
    for line in left_out(failures):
        console.print(f"left out: {line}", markup=False, soft_wrap=True)


def left_out(failures: list[dict]) -> list[str]:
    """A line for each contender and reason."""
    places: dict[tuple, list[str]] = {}
    for failure in failures:
        place = f"{failure['case']}, threads: {failure['threads']}" if failure["case"] else ""
        places.setdefault((failure["contender"], failure["reason"]), []).append(place)
    lines = []
    for (name, reason), where in places.items():
        more = f" and {len(where) - 1} more" if where[1:] else ""
        lines.append(f"{name} {where[0]}{more}: {reason}" if where[0] else f"{name}: {reason}")
    return lines


def _table(title: str, lines: dict[tuple, Line], results: list[dict]) -> Table:
    names = {
        key: list(dict.fromkeys(name for line in lines.values() for name in getattr(line, key)))
        for key in _KINDS
    }
    made = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    made.add_column("case", no_wrap=True)
    for head in ("threads", "headlane", "of the limit"):
        made.add_column(head, justify="right")
    roofs = any(roofline_share(line.headlane) for line in lines.values())
    if roofs:
        made.add_column("of the roofline", justify="right")
    gains = any(gain(line.headlane, results) for line in lines.values())
    if gains:
        made.add_column("/ 1 thread", justify="right")
    costs = any(row.get("base") for line in lines.values() for row in line.rows)
    if costs:
        made.add_column("cost", justify="right", style="bold")
    prepacked = any(line.headlane_prepacked for line in lines.values())
    for key in _KINDS:
        if key == "prepacked" and prepacked:
            made.add_column("headlane prepacked", justify="right")
            made.add_column("of the limit", justify="right")
        for name in names[key]:
            made.add_column(name, justify="right")
        if names[key] and _KINDS[key]:
            made.add_column(_KINDS[key], justify="right", style="bold")
    for (case, threads), line in lines.items():
        cells = [cell(line.headlane), _percent(share(line.headlane))]
        if roofs:
            cells.append(_percent(roofline_share(line.headlane)))
        if gains:
            cells.append(_times(gain(line.headlane, results)))
        if costs:
            cells.append(_times(cost(line.headlane, results)))
        for key in _KINDS:
            rows: dict[str, dict] = getattr(line, key)
            if key == "prepacked" and prepacked:
                cells += [cell(line.headlane_prepacked), _percent(share(line.headlane_prepacked))]
            for name in names[key]:
                shown = (own_cell if key == "own" else cell)(rows.get(name))
                against = cost(rows.get(name), results)
                cells.append(shown if against is None else f"{shown} {_times(against)}")
            if names[key] and _KINDS[key]:
                cells.append(_times(line.ratio(key)))
        made.add_row(case, str(threads), *cells)
    return made


# Groups of contenders beside headlane, each followed by the ratio to its best under this heading.
_KINDS = {"own": "", "plain": "headlane / best", "prepacked": "headlane prepacked / best"}


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"
