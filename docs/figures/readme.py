"""The speeds in README.md, a table and a picture: PYTHONPATH=docs python3 -m figures.readme writes them anew."""

from __future__ import annotations

from pathlib import Path

from . import measured
from .measured import Machine
from .performance import cells, dates
from .performance_plots import overview
from .standalone import SCHEMES, standalone

README = Path(__file__).parents[2] / "README.md"
ROWS = (
    ("GEMM 512 × 512 × 512, GFLOP/s", "gemm", "512x512x512", False),
    ("attention, 8 heads of 64, L = 512, GFLOP/s", "attention", "L=512", False),
    ("causal attention, L = 2048, GFLOP/s", "attention", "L=2048 causal", False),
    ("decoding, 4096 keys, GB/s", "decode", "4096 keys", False),
    ("softmax 4096 × 512, 10⁹ elements/s", "softmax", "4096x512", False),
    ("encoder layer, L = 512, GFLOP/s", "layers", "encoder L=512", False),
    ("T5 (t5-small's shape), tokens/s", "t5", "t5-small, batch 1", False),
    ("all-MiniLM-L6-v2, 128 tokens, tokens/s", "minilm", "1x128", False),
    ("all-MiniLM-L6-v2, 1,000 sentences of 16 tokens, sentences/s", "sentences", "1000 sentences", False),
)
MARKERS = "<!-- speed: made by ./dev docs -->", "<!-- speed: end -->"


def table(machine: Machine) -> str:
    lines = ["| | 1 thread | best other | 2 threads | best other |", "|---|---:|---|---:|---|"]
    for title, op, case, prepacked in ROWS:
        found = [machine.find(op, case, count, prepacked) for count in (1, 2)]
        if any(found):
            lines.append(f"| {title} | " + " | ".join(cells(one) for one in found) + " |")
    about = (
        f"{machine.cpu}, {machine.cores} cores, measured {dates(machine)}; in brackets the share of the "
        "machine's limit."
    )
    return "\n".join(lines) + "\n\n" + about


def with_table(readme: str, machine: Machine) -> str:
    """README's text with the table between the markers."""
    first, last = MARKERS
    before, _, rest = readme.partition(first)
    _, found, after = rest.partition(last)
    if not found:
        raise ValueError(f"README.md has no {first} … {last}")
    return f"{before}{first}\n{table(machine)}\n{last}{after}"


def contents(machine: Machine) -> dict[Path, str]:
    """The files that show speeds outside of the site, and what should be in them."""
    pictures = {
        README.parent / "docs" / f"speed-{scheme}.svg": standalone(overview(machine, wide=420.0), scheme)
        for scheme in SCHEMES
    }
    return {README: with_table(README.read_text(encoding="utf-8"), machine), **pictures}


def outdated(machine: Machine) -> list[Path]:
    return [
        path
        for path, text in contents(machine).items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]


if __name__ == "__main__":
    for path, text in contents(measured.machines()[0]).items():
        path.write_text(text, encoding="utf-8")
        print(path)
