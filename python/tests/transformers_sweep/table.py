"""docs/site/guide/transformers.md from the rows of the sweep."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

CASES = {
    "no mask": "all",
    "left padding": "left",
    "right padding": "right",
    "dynamic cache": "dynamic",
    "static cache": "static",
    "beams": "beams",
    "prompt lookup": "lookup",
}
# status: (heading, meaning)
SECTIONS = {
    "differs": ("Different", "These are faults: the result is not that of `eager`."),
    "fails": ("Failing", "These are faults: `eager` runs, headlane ends in an error that is no refusal."),
    "refused": (
        "Refused",
        'An error says so before anything is computed; use `attn_implementation="eager"`.',
    ),
    "equal": ("Computed by headlane, equal to eager", ""),
    "as sdpa": (
        "Equal to sdpa, not to eager",
        "transformers' own implementations differ from each other here: NVIDIA's streaming encoders invert "
        "the float mask of `eager`; Unlimited-OCR generates other tokens with `sdpa` after left padding.",
    ),
    "own attention": (
        "Attention of their own",
        "The model's file computes attention itself. Making the model warns, its configuration then says "
        "`eager`, and its results are those of `eager`.",
    ),
    "not used": (
        "Without attention",
        "No attention is computed through transformers' interface. Equal to `eager`.",
    ),
    "not run": ("Not run", "`./dev models-table --only REGEX` runs these."),
    "not built": (
        "Not built",
        "The sweep could not make a small model of these types, or inputs for it: nothing is known.",
    ),
}
HEAD = """# Hugging Face transformers: every model type

Made by `./dev models-table`, with transformers {transformers} and PyTorch {torch}; do not edit.

Each of the {count} model types that transformers lists was built small, with random weights that \
make attention matter, and run
with `attn_implementation="headlane"` and with `"eager"`. Columns: forward passes over whole \
sequences (*all*), with *left* and
*right* padding; `generate()` of ten tokens with a *dynamic* and a *static* cache, with *beams* \
and with prompt *lookup*; sliding
windows are 4 tokens long. `=`: equal, the same tokens or a difference of at most {tolerance:g} \
of the largest element, which is what
float32 sums in another order differ by; rows of padding are not compared. `–`: not run, since \
the type has no such input, or
`eager` ends in an error there.

| | model types |
|---|---|
{summary}
"""


def status(row: dict[str, Any]) -> str:
    if row["status"] == "not used" and row.get("warnings"):
        return "own attention"
    return row["status"]


def _line(row: dict[str, Any]) -> str:
    if row.get("cases") and "why" not in row:
        marks = ("=" if row["cases"].get(case) == "equal" else "–" for case in CASES)
        return f"| {row['type']} | {row['class']} | {' | '.join(marks)} |"
    why = str(row.get("why", "")).replace("|", "\\|").replace("\n", " ")
    return f"| {row['type']} | {row.get('class') or '–'} | {why} |"


def markdown(rows: Iterable[dict[str, Any]], types: Iterable[str], tolerance: float) -> str:
    """The table of these types; those without a row were not run."""
    import torch
    import transformers

    by_status = {name: [] for name in SECTIONS}
    by_type = {row["type"]: row for row in rows}
    for name in sorted(types, key=str.lower):
        row = by_type.get(name, {"type": name, "cases": {}, "status": "not run", "why": "–"})
        by_status[status(row)].append(row)
    found = {name: group for name, group in by_status.items() if group}
    text = HEAD.format(
        transformers=transformers.__version__,
        torch=torch.__version__.split("+")[0],
        count=sum(map(len, found.values())),
        tolerance=tolerance,
        summary="\n".join(f"| {SECTIONS[name][0]} | {len(group)} |" for name, group in found.items()),
    )
    for name, group in found.items():
        heading, meaning = SECTIONS[name]
        text += f"\n## {heading}\n\n" + (f"{meaning}\n\n" if meaning else "")
        if "why" in group[0]:
            text += "| type | class | reason |\n|---|---|---|\n"
        else:
            text += f"| type | class | {' | '.join(CASES.values())} |\n|---|---{'|---' * len(CASES)}|\n"
        text += "\n".join(map(_line, group)) + "\n"
    return text


def read(path: Path) -> dict[str, str]:
    """The status of each type in a table."""
    headings = {heading: name for name, (heading, _) in SECTIONS.items()}
    found, name = {}, ""
    for line in path.read_text().splitlines():
        if line.startswith("## "):
            name = headings[line[3:]]
        elif name and line.startswith("| ") and not line.startswith("| type |"):
            found[line.split("|")[1].strip()] = name
    return found
