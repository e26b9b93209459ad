"""A job that takes its time, so that a test can watch or interrupt it wherever it runs.

python slow_job.py SECONDS PIECES embed|translate …: each piece takes so many seconds more, and each rank
waits to be interrupted when it has finished so many. At its end it prints how many it finished: "RUN-RANK: N pieces".
"""

import sys
import time

from headlane.jobs import _journal, _main

SECONDS, PIECES = float(sys.argv[1]), int(sys.argv[2])
ADD = _journal.Journal.add
COUNTS = {}


def add(journal, *given):
    time.sleep(SECONDS)
    while len(journal.records) == PIECES:
        time.sleep(0.01)
    ADD(journal, *given)
    COUNTS[journal.records[0].stem] = len(journal.records)


_journal.Journal.add = add
status = _main.main(sys.argv[3:])
for stem, count in COUNTS.items():
    print(f"{stem}: {count} pieces", flush=True)
sys.exit(status)
