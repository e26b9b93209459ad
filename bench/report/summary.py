"""The findings: what the data say in words and in one table. No sentence here holds a number that is not computed."""

from dataclasses import dataclass

from .data import Comparison, Row, geometric_mean, operation


def tally(comparisons):
    outcomes = [comparison.outcome for comparison in comparisons]
    return {outcome: outcomes.count(outcome) for outcome in ("ahead", "level", "behind")}


def counts_text(comparisons, short=False):
    """As in: ahead of the best peer on 14 of 16 shapes, level on 1, behind on 1. Short: ahead on 14 of 16, level …"""
    counts, total = tally(comparisons), len(comparisons)
    ops = {comparison.ours.op for comparison in comparisons}
    case = operation(ops.pop()).case if len(ops) == 1 else "case"
    first = next(outcome for outcome in ("ahead", "level", "behind") if counts[outcome])
    words = {"ahead": "ahead of", "level": "level with", "behind": "behind"}[first] + " the best peer"
    if total == 1:
        return f"{first if short else words} on the one {case}"
    rest = [f"{outcome} on {amount}" for outcome, amount in counts.items() if amount and outcome != first]
    every = "all" if counts[first] == total else f"{counts[first]} of"
    start = f"{first} on {every} {total}" if short else f"{words} on {every} {total} {case}s"
    return ", ".join([start, *rest])


@dataclass
class Line:
    """One operation with one number of threads."""

    op: str
    threads: int
    comparisons: list
    mean: float | None
    worst: Comparison | None
    best: Comparison | None
    mean_prepacked: float | None  # headlane with prepacked weights against the best such peer
    share: float | None
    share_worst: Row | None
    share_best: Row | None

    @property
    def title(self):
        return operation(self.op).title

    @property
    def tally(self):
        return tally(self.comparisons)


def own_rows(report, op, threads):
    """headlane's rows, from C++ where it was measured so."""
    rows = [row for row in report.select(op, threads) if row.headlane and not (row.prepacked or row.rounded)]
    names = sorted({row.contender for row in rows}, key=lambda name: name != "headlane")
    return [row for row in rows if row.contender == names[0]] if rows else []


def lines(report):
    result = []
    for op in report.ops():
        for threads in report.threads(op):
            comparisons = report.comparisons(op, threads)
            limited = [row for row in own_rows(report, op, threads) if row.share]
            if not comparisons and not limited:
                continue
            by_ratio = sorted(comparisons, key=lambda comparison: comparison.ratio)
            by_share = sorted(limited, key=lambda row: row.share)
            result.append(
                Line(
                    op,
                    threads,
                    comparisons,
                    mean=geometric_mean(comparison.ratio for comparison in comparisons),
                    worst=by_ratio[0] if by_ratio else None,
                    best=by_ratio[-1] if by_ratio else None,
                    mean_prepacked=geometric_mean(
                        c.prepacked_ratio for c in comparisons if c.prepacked_ratio
                    ),
                    share=geometric_mean(row.share for row in limited),
                    share_worst=by_share[0] if by_share else None,
                    share_best=by_share[-1] if by_share else None,
                )
            )
    return result


def not_ahead(report):
    """Every case on which headlane is not ahead, the worst first."""
    everything = [
        c for op in report.ops() for threads in report.threads(op) for c in report.comparisons(op, threads)
    ]
    return sorted((c for c in everything if c.outcome != "ahead"), key=lambda comparison: comparison.ratio)
