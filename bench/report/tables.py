"""The data as tables: every number that a figure plots, for reading and for screen readers."""

from dataclasses import dataclass

from .data import operation
from .figures.base import number, percent
from .figures.roofline import size_text


@dataclass(frozen=True)
class Table:
    caption: str
    head: list
    rows: list  # of lists of text; the first cell heads its row


def duration(seconds):
    units = (("s", 1), ("ms", 1e3), ("µs", 1e6), ("ns", 1e9))
    unit, factor = next((pair for pair in units if seconds * pair[1] >= 1), units[-1])
    return f"{seconds * factor:.4g} {unit}"


def results(report, op):
    what = operation(op)
    rows = [row for row in report.rows if row.op == op]
    head = [what.case.capitalize(), "Threads", "Contender", "ISA", "Median", "Quartiles", what.unit, "Of the limit",
            "headlane against it", "Operations per byte", "Error", "Samples × calls"]  # fmt: skip
    found = {
        (c.ours.case, threads): c for threads in report.threads(op) for c in report.comparisons(op, threads)
    }
    units = sorted({row.error_unit for row in rows if row.error_unit})
    note = f" Error: {', '.join(units)}." if units else ""
    note += " eps = 2⁻²⁴." if "eps" in note else ""
    return Table(
        f"{what.title}: every measurement.{note}",
        head,
        [cells(row, found.get((row.case, row.threads))) for row in sorted(rows, key=order(rows))],
    )


def order(rows):
    """By case as measured, then threads, then the fastest first."""
    place = {case: at for at, case in enumerate(dict.fromkeys(row.case for row in rows))}
    return lambda row: (place[row.case], row.threads, row.seconds)


def cells(row, comparison):
    ours = comparison and (comparison.ours_prepacked if row.prepacked else comparison.ours)
    against = f"{row.seconds / ours.seconds:.2f}×" if ours and not row.headlane else "–"
    limit = f"{percent(row.share)} ({row.limit_kind})" if row.share else "–"
    return [
        row.label,
        str(row.threads),
        row.contender
        + (" (weights prepacked)" if row.prepacked and "prepacked" not in row.contender.lower() else ""),
        row.isa or "–",
        duration(row.seconds),
        f"{duration(row.low)} – {duration(row.high)}",
        number(row.speed),
        limit,
        against,
        number(row.intensity),
        percent(row.error) if "share" in (row.error_unit or "") else number(row.error),
        f"{row.samples or '–'} × {row.calls or '–'}",
    ]


def loading(report):
    """How long models take to load, beside the two parts of it that cannot be avoided."""
    head = ["Model", "Threads", "Contender", "Loading", "Reading the file", "Packing its matrices"]
    rows = [
        [entry["model"], str(entry["threads"]), entry["contender"]]
        + [duration(entry[part]) if entry.get(part) else "–" for part in ("seconds", "read", "pack")]
        for entry in report.loading
    ]
    return Table("Loading a model whose file is in the page cache: medians.", head, rows)


def memory(report):
    """What attention over long sequences takes beyond its inputs and output."""
    head = ["Case", "Threads", "Contender", "Memory", "First call", "GFLOP/s", "Error"]
    rows = [
        [row.label, str(row.threads), row.contender, f"{row.memory / (1 << 20):,.1f} MiB"]
        + [duration(row.seconds), number(row.gflops), number(row.error)]
        for row in report.memory
    ]
    return Table("Memory resident at most beyond inputs and output, in the first call.", head, rows)


def limits(report):
    """Peaks and bandwidths, a row for each instruction set and number of threads."""
    entries = report.limits()
    reads = sorted({size for entry in entries.values() for size in entry["read_gbps"]})
    copies = sorted({size for entry in entries.values() for size in entry["copy_gbps"]})
    head = ["ISA", "Threads", "FMA GFLOP/s"]
    head += [f"Read {size_text(size)}, GB/s" for size in reads] + [
        f"Copy {size_text(size)}, GB/s" for size in copies
    ]
    rows = []
    for (isa, threads), entry in entries.items():
        rates = [entry["read_gbps"].get(size) for size in reads] + [
            entry["copy_gbps"].get(size) for size in copies
        ]
        rows.append([isa, str(threads), number(entry["fma_gflops"]), *map(number, rates)])
    return Table("The machine's limits: the highest of those measured in these runs.", head, rows)
