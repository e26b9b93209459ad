"""A job from the index of its input to its output."""

from __future__ import annotations

import argparse
import itertools
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _identity
from ._files import same_file, write_whole
from ._journal import JobFolder, Journal, Record, digest_of
from ._lines import Index, InputChanged, index, read_at, read_piece, scan
from ._output import HEADER, Output
from ._progress import Progress, duration, say
from ._ranks import PIECES, Ranks, Stop

if TYPE_CHECKING:
    from ._commands import Embed, Translate

SHOWN = 5  # bad lines in a message
ATTEMPTS = 3  # to bring the results of a piece to the disk


class Earlier(NamedTuple):
    """A job that was there before."""

    settings: dict[str, Any]
    whole: bool  # all is computed


class Job:
    """All ranks call each method together."""

    def __init__(self, name: str, options: argparse.Namespace, ranks: Ranks) -> None:
        self._name = name
        self._options = options
        self._ranks = ranks
        self._model: Embed | Translate
        self._threads: int | None = None
        self._folder = JobFolder(Path(os.path.realpath(options.out)))
        self._file: int | None = None
        self._journal: Journal | None = None
        self._output: Output
        self._turns = 0  # that the counter of pieces had when they were handed out
        self._index: Index
        self._digests: np.ndarray  # of the input's pieces
        self._bad: list[tuple[int, str]] = []
        self.begun = time.monotonic()
        self.finished = 0  # lines of earlier runs

    def close(self) -> None:
        """Lets go of all files; of this rank alone."""
        self._folder.close()
        if self._journal is not None:
            self._journal.close()
        if self._file is not None:
            os.close(self._file)

    # ---- Before anything is computed

    def open(self) -> Earlier | None:
        """Returns the job that is resumed."""
        self._file = self._ranks.together(self._open_input)
        ends = self._ranks.together(self._ends)
        self._ranks.same("the input", {"size and ends": ends})
        return self._ranks.together(self._earlier, only_first=True)

    def _open_input(self) -> int:
        name = self._options.input
        if os.path.exists(name) and not os.path.isfile(name):  # others are read once, or wait
            raise Stop(f"--in is not a regular file: {name}")
        return os.open(name, os.O_RDONLY)

    def _ends(self) -> str:
        """Tells apart the inputs of ranks that do not share a file system."""
        size = os.fstat(self._file).st_size
        ends = read_at(self._file, 65536, 0) + read_at(self._file, 65536, max(0, size - 65536))
        return f"{size} bytes, {digest_of(ends)}"

    def _earlier(self) -> Earlier | None:
        folder, options = self._folder, self._options
        if not folder.out.parent.is_dir():
            raise FileNotFoundError(f"there is no folder {folder.out.parent}")
        if folder.out.is_dir():
            raise IsADirectoryError(f"--out is a folder: {folder.out}")
        if folder.out.exists() and not folder.out.is_file():
            raise Stop(f"--out is not a regular file: {folder.out}")
        given = {"--in": options.input, "--out": options.out, "--bad-lines-file": options.bad_lines_file}
        for (one, a), (other, b) in itertools.combinations(given.items(), 2):
            if b and same_file(a, b):
                raise Stop(f"{one} and {other} are the same file: {b}")
        folder.try_names()
        unfinished = folder.path.exists()
        if unfinished and not (options.resume or options.overwrite):
            raise Stop(
                f"{folder.path} is of an unfinished job; --resume goes on with it, --overwrite begins anew"
            )
        if unfinished:
            folder.lock()
        if options.resume and (found := folder.read()):
            return Earlier(*found)
        if folder.out.exists() and not options.overwrite:
            raise Stop(f"{folder.out} exists; --overwrite replaces it")
        return None

    def prepare(self, model: Embed | Translate, threads: int | None, earlier: Earlier | None) -> None:
        """Indexes and checks the lines."""
        self._model, self._threads = model, threads
        found = scan(self._file, self._ranks)
        default = -(-found.lines // (16 * self._ranks.size))
        piece_lines = self._options.piece_lines or max(16, min(default, self._model.piece_lines))
        if earlier:
            piece_lines = earlier.settings.get("piece_lines", piece_lines)
        self._index = index(found, piece_lines, self._ranks)
        digests, bad = self._ranks.together(self._check)
        self._digests = np.empty(self._index.pieces, "S8")
        for r, one in enumerate(self._ranks.allgather(digests)):
            self._digests[r :: self._ranks.size] = one
        self._bad = sorted(line for one in self._ranks.allgather(bad) for line in one)
        self._ranks.together(self._report_bad, only_first=True)

    def _check(self) -> tuple[np.ndarray, list[tuple[int, str]]]:
        """Reads this rank's share of the pieces: their digests, and the bad lines."""
        pieces = range(self._ranks.rank, self._index.pieces, self._ranks.size)
        digests, bad = np.empty(len(pieces), "S8"), []
        for i, piece in enumerate(pieces):
            found = read_piece(self._file, self._index, piece, self._options.max_line_bytes)
            digests[i] = found.digest
            first = self._index.first(piece) + 1
            bad += [(first + at, why) for at, why in found.bad]
            good = [at for at, text in enumerate(found.texts) if text is not None]
            refused = self._model.refused([found.texts[at] for at in good])  # type: ignore[misc]
            bad += [(first + good[at], why) for at, why in refused.items()]
        return digests, bad

    def _report_bad(self) -> None:
        if self._options.bad_lines_file:
            text = "".join(f"{number}\t{why}\n" for number, why in self._bad)
            Path(self._options.bad_lines_file).write_bytes(text.encode())  # a device or FIFO stays one
        if not self._bad:
            return
        for number, why in self._bad[:SHOWN]:
            say(self._name, f"{self._options.input}, line {number}: {why}")
        if len(self._bad) > SHOWN:
            say(self._name, f"and {len(self._bad) - SHOWN} more bad lines")
        if self._options.bad_lines == "fail":
            raise Stop(
                f"{len(self._bad)} bad lines; --bad-lines skip puts {self._model.replaced} in their place"
            )

    def settings(self, identity: dict[str, Any]) -> dict[str, Any]:
        """All that the bits depend on."""
        found = {
            "size": self._index.size,
            "lines": self._index.lines,
            "digest": digest_of(self._digests.tobytes()),
        }
        header = digest_of(self._model.header(self._index.lines))
        return {**identity, "input": found, "piece_lines": self._index.piece_lines, "header": header}

    # ---- The folder of the job

    def same(self, settings: dict[str, Any], earlier: Earlier) -> None:
        """Stops if the job before was another one."""
        if found := _identity.differences(earlier.settings, settings):
            which = self._folder.path if self._folder.path.exists() else self._folder.out
            raise Stop(f"{which} is of another job; --overwrite begins anew. {'; '.join(found[:8])}")

    def clean_up(self, settings: dict[str, Any]) -> None:
        """Of a job that was interrupted after its last piece, if it was."""
        self._ranks.together(lambda: self._folder.clean_up(settings), only_first=True)
        if self._ranks.rank == 0:
            say(self._name, f"{self._folder.out} is complete: {self._index.lines} lines")

    def begin(self, settings: dict[str, Any], earlier: Earlier | None) -> None:
        """Makes OUT.job, unless it is there."""

        def make() -> int:
            if earlier is None:
                self._folder.begin(settings)
            if not self._folder.locks:
                say(self._name, f"{self._folder.path}: a file system without locks; no second job may run")
            if not self._folder.output.exists():
                write_whole(self._folder.output, self._model.header(self._index.lines))
            return self._folder.next_run()

        self._run = self._ranks.together(make, only_first=True)
        self._ranks.together(lambda: self._see(settings))

    def _see(self, settings: dict[str, Any]) -> None:
        for _ in range(100):  # a network's file system may take its time
            if self._folder.settings.exists():
                break
            time.sleep(0.1)
        if not self._folder.settings.exists() or self._folder.read() != (settings, False):
            raise RuntimeError(
                f"does not see rank 0's {self._folder.path}: all ranks need the same file system"
            )

    def _finished(self) -> dict[int, Record]:
        """The pieces that earlier runs finished."""
        records = self._ranks.together(self._folder.records, only_first=True)
        input_digests = {record.piece: record.input_digest for record in records}
        for piece, digest in input_digests.items():
            if not 0 <= piece < self._index.pieces or digest != self._input_digest(piece):
                raise Stop(
                    f"{self._folder.path}: a journal does not belong to this input; --overwrite begins anew"
                )
        kept = self._ranks.allgather(self._ranks.together(lambda: self._output.kept(records)))
        found = {record.piece: record for one in kept for record in one}
        self._say_lost(len(input_digests) - len(found))
        return found

    def _say_lost(self, pieces: int) -> None:
        if pieces and self._ranks.rank == 0:
            text = "pieces computed again, since their results are not as they were written"
            say(self._name, f"{text}: {pieces}")

    def _input_digest(self, piece: int) -> str:
        return bytes(self._digests[piece]).ljust(8, b"\0").hex()

    # ---- The work

    def work(self) -> None:
        """Computes what is left, until all is in the output. A failure of any rank ends all of them."""
        spooled = self._model.line_bytes is None
        self._output = Output(self._folder, self._model.header(self._index.lines), spooled, self._ranks)
        done = self._finished()
        self._ranks.resumable = True
        self.finished = sum(map(self._index.count, done))
        if done and self._ranks.rank == 0:
            say(self._name, f"{self.finished} of {self._index.lines} lines are finished already")
        self._journal = Journal(self._folder, self._run, self._ranks.rank, spooled)
        self.begun = time.monotonic()
        progress = Progress(self._name, self._ranks, self._index.lines, self.finished, self._options.progress)
        for _ in range(ATTEMPTS):
            self._compute_left(done, self._journal, progress)
            lost = self._output.lost(done)
            if not lost:
                return
            self._say_lost(len(lost - {HEADER}))
            for piece in lost:
                done.pop(piece, None)
        what = f"results are not in their files as they were written, {ATTEMPTS} times"
        raise Stop(f"{self._folder.path}: {what}; pieces: {len(lost)}")

    def _compute_left(self, done: dict[int, Record], journal: Journal, progress: Progress) -> None:
        """Adds to `done` what is missing there."""
        left = [piece for piece in range(self._index.pieces) if piece not in done]
        bad = {number - 1 for number, _ in self._bad}
        known = len(journal.records)
        self._ranks.allgather(None)  # the counters begin together
        while (turn := self._ranks.add(PIECES, 1) - self._turns) < len(left):
            self._compute(left[turn], journal, bad)
            progress.add(self._index.count(left[turn]))
        self._turns += len(left) + self._ranks.size  # each rank took one that is not there
        for one in self._ranks.allgather(journal.records[known:], progress.wait):
            done.update((record.piece, record) for record in one)
        if len(done) != self._index.pieces:
            raise RuntimeError(f"{self._index.pieces - len(done)} pieces are missing")

    def _compute(self, piece: int, journal: Journal, bad: set[int]) -> None:
        first = self._index.first(piece)
        found = read_piece(self._file, self._index, piece, self._options.max_line_bytes)
        if found.digest.hex() != self._input_digest(piece):
            raise InputChanged(f"the input changed while the job was running, after line {first}")
        texts = [None if first + i in bad else text for i, text in enumerate(found.texts)]
        data = self._model.compute(texts, self._threads)
        offset = None
        if self._model.line_bytes is not None:
            offset = len(self._model.header(self._index.lines)) + first * self._model.line_bytes
        journal.add(piece, data, offset, self._input_digest(piece))

    def finish(self, settings: dict[str, Any]) -> None:
        """Gives the output its name."""
        self._ranks.together(lambda: self._folder.finish(settings), only_first=True)
        if self._ranks.rank == 0:
            self._summary()

    def _summary(self) -> None:
        seconds = time.monotonic() - self.begun
        lines = self._index.lines - self.finished
        text = f"{self._index.lines} lines in {self._folder.out}"
        if lines:
            text += f"; {lines} of them now, in {duration(seconds)}, {lines / max(seconds, 1e-9):.1f} lines/s"
        if self._bad:
            text += f"; {len(self._bad)} bad lines are {self._model.replaced}"
        say(self._name, text)
