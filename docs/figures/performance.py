"""Tables of measured speeds, and the sections of the performance page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from report.data import OPERATIONS

from .measured import Machine, Row
from .performance_plots import digits, label, overview, panels, scaling, threads_text

NOTES = {
    "gemm": (
        "m × n × k, C = A · B. *Packed* weights were brought into the library's own layout before the "
        "timing, for all contenders."
    ),
    "lowbit": (
        "m × n × k, A in float32. *w8*: weights of 8 bits with a scale for each column; *w4*: of 4 bits, with one "
        "for each 32 rows; *w8a8*: of 8 bits, and A rounded to 8 bits in each call; *bfloat16*: the weights, and A "
        "in each call. The limit of more than one row is the FMA peak of float32, of which products of integers "
        "and, on CPUs with AVX512-BF16, of bfloat16 reach several times as much."
    ),
    "softmax": "Rows × columns, along the rows. The mask takes out an eighth of the elements.",
    "attention": (
        "8 heads of 64 unless stated, L queries and L keys. Only visible pairs of query and key count as "
        "work: what a library "
        "computes and throws away does not make it faster here."
    ),
    "attention_options": "8 heads of 64 unless stated, each option alone.",
    "decode": (
        "One query row for each sequence and head; reading the keys and values is all the work. *In bfloat16* and "
        "*in int8*: that is how they are stored, by headlane in a KvCache, by PyTorch as tensors, queries like keys."
    ),
    "norms": "Rows × columns.",
    "layers": (
        "d_model 512, 8 heads, d_ff 2048, GELU, normalization after the additions. Only the matrix "
        "products count as work."
    ),
    "t5": (
        "Greedy generation of 64 tokens from 16, random weights, float32. Everybody must generate the "
        "same tokens. Those with weights and activations in int8 differ; int8 is not compared with float32."
    ),
    "minilm": "all-MiniLM-L6-v2, batch × tokens, states of the last layer.",
    "sentences": (
        "all-MiniLM-L6-v2, sentences of 16 tokens on average: for each the normalized mean of its states. "
        "headlane takes them all in one call; the others take them in batches, of 32 padded to the longest "
        "or *by length*, all of one length without padding. Only tokens count as work, padding does not."
    ),
    "encode": "Models of transformers with random weights, batch × tokens, changed by `headlane.torch.optimize`.",
    "prefill": "The logits behind a prompt, batch × tokens. Only the products count as work.",
    "generate": (
        "Greedy generation of 64 tokens behind the first one, which a prompt of 512 gives. The limit is reading the "
        "weights as they are stored, and the cache, once a step."
    ),
}


def values(machines: list[Machine]) -> dict[str, str]:
    fullest = machines[0]
    pairs = [row for row in fullest.rows if row.ratio]
    ahead = sum(row.ratio > 1 for row in pairs)
    return {
        "ahead": str(ahead),
        "pairs": str(len(pairs)),
        "median_ratio": f"{sorted(row.ratio for row in pairs)[len(pairs) // 2]:.2f}",
        "dates": dates(fullest),
        "overview": overview(fullest),
        "scaling": scaling(fullest),
        "machines": "\n\n".join(section(machine, len(machines) > 1) for machine in machines),
    }


def dates(machine: Machine) -> str:
    found = sorted({run.date for run in machine.runs})
    return found[0] if len(found) == 1 else f"{found[0]} to {found[-1]}"


def section(machine: Machine, named: bool) -> str:
    parts = [f"## {machine.cpu}"] if named else []
    parts += ["## The runs", runs_list(machine)]
    for op in OPERATIONS:
        rows = machine.of(op)
        if rows:
            parts += [
                f"## {OPERATIONS[op].title}",
                NOTES[op] + f" In {OPERATIONS[op].unit}.",
                panels(op, rows),
                table(rows),
            ]
            if any(row.roofline for row in rows):
                parts.append(rooflines(rows))
            if any(row.cost for row in rows):
                parts.append(costs(rows))
            if any(len(row.speeds) > 2 for row in rows):
                parts.append(all_contenders(rows))
            if any(row.isas for row in rows):
                parts.append(isas(rows))
    return "\n\n".join(parts)


def runs_list(machine: Machine) -> str:
    lines = [f"{machine.cpu}, {machine.cores} cores.", ""]
    for run in machine.runs:
        said = [
            run.date,
            f"headlane {run.headlane}" + (f" ({run.commit})" if run.commit else ""),
            run.compiler,
        ]
        if run.os:
            said.append(run.os)
        peaks = [
            f"{value:g} GFLOP/s with {threads_text(int(count))}" for count, value in run.fma_gflops.items()
        ]
        if peaks:
            said.append("FMA peak " + " and ".join(peaks))
        if run.busy > 0.05:
            said.append(f"others used {100 * run.busy:.0f} % of the CPUs")
        if run.source:
            said.append(run.source)
        others = [f"{name} {version}" if version else name for name, version in run.contenders.items()]
        beside = f" Beside {', '.join(others)}." if others else ""
        titles = ", ".join(OPERATIONS[op].title for op in run.ops)
        lines.append(f"- **{titles}:** {'; '.join(said)}.{beside}")
    return "\n".join(lines)


@dataclass
class Case:
    """The rows of one case, by the number of threads."""

    name: str
    rows: dict[int, Row]


def cases(rows: Iterable[Row]) -> list[Case]:
    grouped: dict[tuple[str, bool], Case] = {}
    for one in rows:
        key = one.case, one.prepacked
        grouped.setdefault(key, Case(label(*key), {})).rows[one.threads] = one
    return list(grouped.values())


def cells(one: Row | None) -> str:
    """headlane with its share of the limit, and the best peer; the faster one is bold."""
    if one is None:
        return " | "
    share = f" ({100 * one.share:.0f} %)" if one.share else ""
    ours, best = digits(one.ours), one.best
    if best is None:
        return f"{ours}{share} | "
    peer = digits(best[1])
    if ours == peer:
        return f"{ours}{share} | {peer} {best[0]}"
    ahead = one.ours > best[1]
    return f"**{ours}**{share} | {peer} {best[0]}" if ahead else f"{ours}{share} | **{peer}** {best[0]}"


def table(rows: list[Row]) -> str:
    counts = sorted({one.threads for one in rows})
    heads = " | ".join(f"{threads_text(count)} | best other" for count in counts)
    lines = [f"| | {heads} |", "|---" + "|---:|---" * len(counts) + "|"]
    for case in cases(rows):
        lines.append(f"| {case.name} | " + " | ".join(cells(case.rows.get(count)) for count in counts) + " |")
    return "\n".join(lines)


def rooflines(rows: list[Row]) -> str:
    """headlane's share of the roofline of all its work, for each number of threads."""
    counts = sorted({one.threads for one in rows})
    lines = ["| | " + " | ".join(map(threads_text, counts)) + " |", "|---" + "|---:" * len(counts) + "|"]
    for case in cases(rows):
        found = [case.rows.get(count) for count in counts]
        shares = [one.roofline_share if one else None for one in found]
        if any(shares):
            told = " | ".join(f"{100 * share:.0f} %" if share else "–" for share in shares)
            lines.append(f"| {case.name} | {told} |")
    return '??? note "headlane\'s share of its roofline"\n\n' + "\n".join("    " + text for text in lines)


def costs(rows: list[Row]) -> str:
    """What an option costs: the time for as much work, over that of the case without it."""
    counts = sorted({one.threads for one in rows})
    heads = " | ".join(threads_text(count) for count in counts)
    lines = [
        "What an option costs: the time for as much work, over that of the same case without the option.",
        "",
        f"| | {heads} |",
        "|---" + "|---:" * len(counts) + "|",
    ]
    for case in cases(one for one in rows if one.cost):
        found = (case.rows.get(count) for count in counts)
        lines.append(
            f"| {case.name} | " + " | ".join(f"{one.cost:.2f}×" if one else "–" for one in found) + " |"
        )
    return "\n".join(lines)


def isas(rows: list[Row]) -> str:
    names = list(dict.fromkeys(name for one in rows for name in one.isas))
    lines = ["| | threads | " + " | ".join(names) + " |", "|---" + "|---:" * (len(names) + 1) + "|"]
    for one in rows:
        if one.isas:
            speeds = " | ".join(digits(one.isas[name]) if name in one.isas else "–" for name in names)
            lines.append(f"| {label(one.case)} | {one.threads} | {speeds} |")
    return '??? note "headlane with other instruction sets"\n\n' + "\n".join("    " + text for text in lines)


def all_contenders(rows: list[Row]) -> str:
    names = list(dict.fromkeys(name for one in rows for name in one.speeds))
    lines = ["| | threads | " + " | ".join(names) + " |", "|---" + "|---:" * (len(names) + 1) + "|"]
    for one in rows:
        speeds = " | ".join(digits(one.speeds[name]) if name in one.speeds else "–" for name in names)
        lines.append(f"| {label(one.case, one.prepacked)} | {one.threads} | {speeds} |")
    return '??? note "Every contender"\n\n' + "\n".join("    " + text for text in lines)
