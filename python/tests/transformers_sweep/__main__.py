"""Every model type of transformers, small and random, with "headlane" and with "eager": a process
for each.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import sys
from pathlib import Path

import processes

os.environ.update(
    OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="critical", TOKENIZERS_PARALLELISM="false"
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev models-table", description=__doc__)
    parser.add_argument(
        "--only", metavar="REGEX", help="these model types; the others keep the rows that --json has"
    )
    processes.add_limits(parser)
    parser.add_argument(
        "--json", type=Path, default=Path("build/models-table.json"), help="rows, as they are found"
    )
    parser.add_argument(
        "--table", type=Path, default=Path("docs/site/guide/transformers.md"), help="where the table goes"
    )
    parser.add_argument(
        "--optimized",
        nargs="?",
        const="eager",
        choices=("eager", "sdpa"),
        help="models of headlane.torch.optimize() that had this attention, by default eager; without a table",
    )
    options = parser.parse_args()
    import headlane
    import torch

    torch.set_num_threads(1)
    headlane.set_num_threads(1)
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    from . import cases, table

    types = [t for t in sorted(CONFIG_MAPPING_NAMES) if re.fullmatch(options.only or ".*", t)]
    rows = {}
    if options.only and options.json.exists():
        rows = {row["type"]: row for row in json.loads(options.json.read_text())}
    sweep = functools.partial(cases.sweep, optimized=options.optimized)
    for count, (model_type, row) in enumerate(processes.each(types, sweep, options), 1):
        if isinstance(row, str):
            row = {"type": model_type, "cases": {}, "status": "not built", "why": row}
        rows[model_type] = row
        print(
            f"{count}/{len(types)} {model_type}: {table.status(row)} {row.get('why', '')}"[:200],
            file=sys.stderr,
            flush=True,
        )
        options.json.write_text(json.dumps(list(rows.values()), indent=1))
    if not options.optimized:
        text = table.markdown(rows.values(), CONFIG_MAPPING_NAMES, cases.TOLERANCE)
        options.table.write_text(text)
        print(text)
    faults = [row["type"] for row in rows.values() if row["status"] in ("differs", "fails")]
    sys.exit(f"neither equal nor refused: {', '.join(faults)}" if faults else 0)


main()
