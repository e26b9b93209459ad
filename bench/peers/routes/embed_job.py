"""headlane-embed as a user runs it: `mpirun -n 2 python -m peers.routes.embed_job MODEL FOLDER embed LINES SECONDS`.

One job in a process, over FOLDER/corpus-LINES. Rank 0 prints a line of JSON, as bench_mpi; its "median" is the time of
the only job, however short: from the first piece that is handed out to the output that has its name. The interpreter,
MPI, reading the model, indexing and checking the lines come before; "before" is what of that is the job's.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path

import numpy as np

from ..cases.models import sentence_lengths


def write_corpus(model: Path, folder: Path, lines: int) -> None:
    """Sentences of natural lengths, of words that are a token each."""
    known = (model / "vocab.txt").read_text().splitlines()[1000:]
    words = [word for word in known if word.isascii() and word.isalpha()]
    lengths = sentence_lengths(lines) - 2  # without the tokens at both ends
    drawn = np.random.default_rng(3).integers(0, len(words), lengths.sum())
    sentences = np.split(drawn, np.cumsum(lengths)[:-1])
    text = "".join(" ".join(words[i] for i in sentence) + "\n" for sentence in sentences)
    (folder / f"corpus-{lines}").write_text(text)


def main(model: str, folder: str, case: str, lines: str) -> int:
    from headlane.jobs import _job, _main

    begun = time.monotonic()
    found = {}

    class Timed(_job.Job):
        def finish(self, settings) -> None:
            super().finish(settings)
            end = time.monotonic()
            found.update(rank=self._ranks.rank, ranks=self._ranks.size, median=end - self.begun)
            found["before"] = self.begun - begun

    _main.Job = Timed
    corpus, out = Path(folder, f"corpus-{lines}"), Path(folder, "vectors.npy")
    status = _main.run("embed", [model, "--in", str(corpus), "--out", str(out), "--overwrite"])
    if status == 0 and found.pop("rank") == 0:
        bits = hashlib.sha256(out.read_bytes()).hexdigest()
        about = {"case": case, "length": int(lines), "threads": int(os.environ["OMP_NUM_THREADS"])}
        print(json.dumps({**about, **found, "bits": bits}), flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:5]))
