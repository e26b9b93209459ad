"""The tables of whole models."""

from __future__ import annotations

from rich.table import Table

from ..contenders.contender import ROUNDED
from .operations import _percent, _times, console, digits, roofline_share, share

OURS, OURS_ROUNDED = "headlane", "headlane int8"


def tokens_per_second(row: dict) -> float:
    return row["shape"]["batch"] * row["shape"]["tokens"] / row["seconds"]


def is_rounded(row: dict) -> bool:
    return row["contender"].endswith(ROUNDED)


def best(rows: list[dict]) -> dict | None:
    return min(rows, key=lambda row: row["seconds"], default=None)


class Line:
    """One case with one number of threads."""

    def __init__(self, rows: list[dict]) -> None:
        self.by_name = {row["contender"]: row for row in rows}
        self.ours, self.ours_rounded = (self.by_name.get(name) for name in (OURS, OURS_ROUNDED))
        peers = [row for row in rows if not row["contender"].startswith(OURS)]
        self.best = best([row for row in peers if not is_rounded(row)])
        self.best_rounded = best([row for row in peers if is_rounded(row)])

    def ratio(self, rounded: bool = False) -> float | None:
        """How many times as fast headlane is as the best: in float32, or both with integers of 8 bits."""
        ours, other = (self.ours_rounded, self.best_rounded) if rounded else (self.ours, self.best)
        return other["seconds"] / ours["seconds"] if other and ours else None


def lines(document: dict, op: str) -> dict[tuple, Line]:
    grouped: dict[tuple, list[dict]] = {}
    for row in document["results"]:
        if row["op"] == op:
            grouped.setdefault((row["case"], row["threads"]), []).append(row)
    return {key: Line(rows) for key, rows in grouped.items()}


def spread(row: dict) -> str:
    return f"±{50 * (row['high'] - row['low']) / row['seconds']:.0f}%"


def t5_cell(row: dict | None) -> str:
    """Tokens a second; in brackets what share of them are not the reference's."""
    if row is None:
        return "-"
    other = f" ({100 * row['error']:.1f} % other)" if row["error"] else ""
    return f"{digits(tokens_per_second(row))} {spread(row)}{other}"


def off(row: dict) -> str:
    """How far vectors are from the reference."""
    return f"cos {row['cosine']:.4f}" if is_rounded(row) else f"{row['error']:.0f}ε"


def minilm_cell(row: dict | None) -> str:
    return "-" if row is None else f"{1000 * row['seconds']:.2f} {spread(row)} {off(row)}"


def sentences_cell(row: dict | None) -> str:
    if row is None:
        return "-"
    return f"{digits(row['shape']['batch'] / row['seconds'])} {spread(row)} {off(row)}"


def print_results(document: dict) -> None:
    t5, minilm, sentences = (lines(document, op) for op in ("t5", "minilm", "sentences"))
    if t5:
        title = "T5, random weights, greedy, 64 new tokens: tokens/s; limit: reading the decoder's weights once a step"
        console.print(_table(title, t5, t5_cell, "of the limit"))
        console.print(_tokens(t5))
    if minilm:
        title = (
            "MiniLM (6 layers of 384), batch x length: ms, and the largest error in eps of a row's root mean square "
            "(int8: the smallest cosine)"
        )
        console.print(_table(title, minilm, minilm_cell, "of the FMA peak"))
    if sentences:
        title = (
            "MiniLM, sentences of natural lengths, a normalized vector each: sentences/s, and the largest error in eps "
            "of a vector's root mean square (int8: the smallest cosine)"
        )
        console.print(_table(title, sentences, sentences_cell, "of the FMA peak"))
    if document["loading"]:
        console.print(_loading(document["loading"]))


def _tokens(t5: dict[tuple, Line]) -> str:
    rows = [row for line in t5.values() for row in line.by_name.values()]
    exact = [row for row in rows if not is_rounded(row)]
    whose = " or ".join(dict.fromkeys(row["against"] for row in rows))
    if len({row["contender"] for row in exact}) < 2:
        return "one float32 contender: no tokens to compare"
    if not any(row["error"] for row in exact):
        return f"all float32 contenders gave the tokens of {whose}"
    who = ", ".join(dict.fromkeys(row["contender"] for row in exact if row["error"]))
    return f"NOT all float32 contenders gave the tokens of {whose}: {who}"


def _table(title: str, shown: dict[tuple, Line], cell, limit: str) -> Table:
    made = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    made.add_column("case", no_wrap=True)
    names = list(dict.fromkeys(name for line in shown.values() for name in line.by_name if name != OURS))
    roofs = any(roofline_share(line.ours) for line in shown.values())
    for head in ("threads", OURS, limit, *["of the roofline"] * roofs, *names):
        made.add_column(head, justify="right")
    made.add_column("headlane / best", justify="right", style="bold")
    rounded = any(line.best_rounded for line in shown.values())
    if rounded:
        made.add_column("int8 / best int8", justify="right", style="bold")
    for (case, threads), line in shown.items():
        cells = [
            cell(line.ours),
            _percent(share(line.ours)),
            *[_percent(roofline_share(line.ours))] * roofs,
            *(cell(line.by_name.get(name)) for name in names),
        ]
        cells.append(_times(line.ratio()))
        made.add_row(case, str(threads), *cells, *([_times(line.ratio(rounded=True))] if rounded else []))
    return made


def _loading(rows: list[dict]) -> Table:
    title = f"Loading {rows[0]['model']}, file in the page cache: ms"
    made = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for head in (
        "contender",
        "threads",
        "loading",
        "reading the file",
        "packing its matrices",
        "loading / both",
    ):
        made.add_column(head, justify="left" if head == "contender" else "right")
    for row in rows:
        parts = [row.get(name) for name in ("read", "pack")]
        both = row["seconds"] / sum(parts) if None not in parts else None
        cells = [_ms(value) for value in (row["seconds"], *parts)]
        made.add_row(row["contender"], str(row["threads"]), *cells, _times(both))
    return made


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{1000 * value:.0f}"
