"""The folder OUT.job of an unfinished job: what it computes, and which pieces are finished.

    job.json           what the bits of the output depend on
    output             the output so far; it is renamed to OUT
    N-RRRRR.journal    a line for each piece that rank R of run N finished
    N-RRRRR.spool      its results, if they have no place of their own in the output
    finished           the output is whole
    lock               held by the job that works here

When it is complete, OUT.job.json has what was in job.json, and the size of OUT.

A line of a journal is written after its results have reached the disk. It has the piece, offset and length
of its results, their digest and that of the input's lines, and a CRC-32 of all this.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import socket
import time
from pathlib import Path
from typing import Any, NamedTuple

from ._files import (
    draft_of,
    read_json,
    sync_folder,
    with_checksum,
    without_checksum,
    write_at,
    write_json,
    write_whole,
)

SHARED = os.O_WRONLY | os.O_DSYNC  # of a file that many ranks write: see _output.py


class Record(NamedTuple):
    """A finished piece."""

    piece: int
    offset: int
    length: int
    digest: str
    input_digest: str
    stem: str  # of the journal's and the spool's names


def digest_of(data: bytes | memoryview) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def read_journal(path: Path) -> list[Record]:
    """The records of a file. What was written last may have reached the disk in part, and is then ignored."""
    records = []
    *lines, rest = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        text = without_checksum(line)
        fields = text.split() if text is not None else []
        if len(fields) != 5:
            if number == len(lines) and not rest:
                break
            raise RuntimeError(f"{path}, line {number}, is damaged; --overwrite begins anew")
        piece, offset, length = map(int, fields[:3])
        records.append(Record(piece, offset, length, fields[3], fields[4], path.stem))
    return records


class JobFolder:
    """OUT.job. Rank 0 makes, reads and removes it; each rank writes a journal in it."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.path = out.with_name(out.name + ".job")
        self.settings = self.path / "job.json"
        self.output = self.path / "output"
        self.finished = self.path / "finished"
        self.receipt = out.with_name(out.name + ".job.json")
        self.locks = True  # whether the file system has locks
        self._lock_path = self.path / "lock"
        self._lock: int | None = None

    def try_names(self) -> None:
        """OSError if the longest name of all is too long, which would be seen when all is computed."""
        with contextlib.suppress(FileNotFoundError):
            os.stat(draft_of(self.receipt))

    def lock(self) -> None:
        """Fails if another job works in the folder, on any machine. A process that ends lets go of it."""
        self._lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o666)
        for attempt in range(20):  # a job that was killed may live on for a moment
            try:
                fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EAGAIN):
                    self.locks = False
                    return
            if attempt == 19:
                holder = os.read(self._lock, 200).decode(errors="replace").strip()
                raise RuntimeError(f"another job is writing {self.out}: {holder}")
            time.sleep(0.25)
        try:
            here = os.path.samestat(os.fstat(self._lock), os.stat(self._lock_path))
        except FileNotFoundError:
            here = False
        if not here:
            raise RuntimeError(f"another job finished {self.out} just now")
        with contextlib.suppress(OSError):  # it serves the message above alone
            os.ftruncate(self._lock, 0)
            os.write(self._lock, f"process {os.getpid()} on {socket.gethostname()}\n".encode())

    def begin(self, settings: dict[str, Any]) -> None:
        """A new folder, in place of an old one that this job has locked."""
        if self._lock is not None:
            self._remove(self.finished, self.settings, *self._files())
        else:
            try:
                self.path.mkdir()
            except FileExistsError:
                raise RuntimeError(f"another job is writing {self.out}") from None
            self.lock()
        write_json(self.settings, settings)
        sync_folder(self.path.parent)

    def read(self) -> tuple[dict[str, Any], bool] | None:
        """The settings of the job that is here, or whose output is, and whether that is whole."""
        whole = self.finished.exists()
        if self.settings.exists():
            return read_json(self.settings), whole
        if not self.receipt.exists() or not self.out.exists():
            return None
        settings = read_json(self.receipt)
        return (settings, True) if settings.pop("output", None) == self._size() else None

    def _size(self) -> dict[str, int]:
        return {"size": self.out.stat().st_size}

    def _files(self) -> list[Path]:
        """Results and journals."""
        others = (self.settings, self.finished, self._lock_path)
        return [path for path in sorted(self.path.iterdir()) if path not in others]

    def _remove(self, *paths: Path) -> None:
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()

    def finish(self, settings: dict[str, Any]) -> None:
        """The output gets its name, and the folder is removed: first what is not missed if this is interrupted."""
        if not self.finished.exists():
            write_whole(self.finished, b"")
        if self.output.exists():
            os.replace(self.output, self.out)
            sync_folder(self.out.parent)
        write_json(self.receipt, {**settings, "output": self._size()})
        self._remove(*self._files(), self.settings, self.finished, self._lock_path)
        self.path.rmdir()

    def clean_up(self, settings: dict[str, Any]) -> None:
        """What finish() left, if it was interrupted."""
        if self.path.exists():
            self.finish(settings)

    def close(self) -> None:
        """Lets go of the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def stems(self) -> list[str]:
        """The names of journals, without .journal."""
        stems = (path.stem for path in self.path.glob("*.journal"))
        return sorted(stem for stem in stems if re.fullmatch(r"\d+-\d+", stem))

    def records(self) -> list[Record]:
        return [record for stem in self.stems() for record in read_journal(self.path / f"{stem}.journal")]

    def next_run(self) -> int:
        return 1 + max((int(stem.partition("-")[0]) for stem in self.stems()), default=0)


class Journal:
    """The pieces that this rank finishes. Files are made when the first one is."""

    def __init__(self, folder: JobFolder, run: int, rank: int, spooled: bool) -> None:
        self._stem = f"{run}-{rank:05}"
        self._path = folder.path
        self._output = None if spooled else os.open(folder.output, SHARED)
        self._journal: int | None = None
        self._end = 0  # of the spool
        self._journal_end = 0
        self.records: list[Record] = []

    def _create(self, ending: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        return os.open(self._path / f"{self._stem}.{ending}", flags, 0o666)

    def add(self, piece: int, data: bytes | memoryview, offset: int | None, input_digest: str) -> None:
        """Stores results, and then says so. offset: their place in the output, or None for the spool."""
        if self._journal is None:
            self._journal = self._create("journal")
            if self._output is None:
                self._output = self._create("spool")
            sync_folder(self._path)
        assert self._output is not None
        place = self._end if offset is None else offset
        write_at(self._output, data, place)
        os.fsync(self._output)
        length = memoryview(data).nbytes
        record = Record(piece, place, length, digest_of(data), input_digest, self._stem)
        line = with_checksum(" ".join(map(str, record[:5])))
        write_at(self._journal, line, self._journal_end)
        os.fsync(self._journal)
        self._journal_end += len(line)
        self._end += length if offset is None else 0
        self.records.append(record)

    def close(self) -> None:
        for file in (self._output, self._journal):
            if file is not None:
                os.close(file)
