"""Reads the JSON files that ./dev peers writes."""

import json

from .data import Report, Row

SCHEMA = "headlane-peers-1"
OLD_SCHEMA = "headlane-peers-models-1"  # of models.json before 0.2.0


class BadFile(Exception):
    """A file that is not what ./dev peers writes; the message names it."""


def _row(entry, prepacked, routes):
    limit = entry.get("limit") or {}
    low, high = entry.get("low") or entry["seconds"], entry.get("high") or entry["seconds"]
    return Row(
        **{key: entry[key] for key in ("op", "case", "threads", "contender", "seconds")},
        isa=entry.get("isa"),
        low=low,
        high=high,
        shape=entry.get("shape") or {},
        samples=entry.get("samples"),
        calls=entry.get("calls_per_sample"),
        flops=entry.get("flops"),
        bytes=entry.get("bytes"),
        limit=limit.get("seconds"),
        limit_kind=limit.get("kind"),
        roofline=(entry.get("roofline") or {}).get("seconds"),
        error=entry.get("error"),
        error_unit=entry.get("error_unit"),
        prepacked=entry["contender"] in prepacked,
        route=routes.get(entry["contender"]),
        memory=entry.get("memory"),
    )


def load(paths):
    runs = []
    for path in paths:
        try:
            run = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BadFile(f"{path}: {error}") from None
        if not isinstance(run, dict) or run.get("schema") not in (SCHEMA, OLD_SCHEMA):
            raise BadFile(f"{path}: not a file of ./dev peers (its schema is not {SCHEMA})")
        missing = [key for key in ("machine", "contenders", "results", "date") if key not in run]
        if missing:
            raise BadFile(f"{path}: has no {', '.join(missing)}")
        prepacked = {entry["name"] for entry in run["contenders"] if entry.get("prepacked")}
        routes = {entry["name"]: entry.get("route") for entry in run["contenders"]}
        runs.append({**run, "rows": [_row(entry, prepacked, routes) for entry in run["results"]]})
    cpus = sorted({run["machine"].get("cpu") for run in runs})
    if len(cpus) > 1:
        raise BadFile(f"these files are of different machines: {', '.join(cpus)}")
    return Report(runs)
