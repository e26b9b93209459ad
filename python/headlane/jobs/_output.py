"""The results of pieces, and whether they are in their files as they were written.

Ranks on several machines write neighbouring bytes of one file. Where no lock guards it, an NFS client
writes whole pages that it has in memory, with what it believes to be the neighbours' bytes. It writes the
bytes that it was given, and no others, to a file opened with SHARED. Whether a file system kept to
that is seen before the output gets its name: all of it is read again and held against the journals.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Callable, NamedTuple

from ._files import write_at
from ._journal import SHARED, JobFolder, Record, digest_of
from ._lines import read_at
from ._ranks import Ranks

HEADER = -1  # in place of a piece


class Place(NamedTuple):
    """Bytes of a file, and what they should be."""

    path: Path
    offset: int
    length: int
    digest: str
    piece: int


def stored(places: Iterable[Place]) -> Iterator[tuple[Place, bytes | None]]:
    """What the disk has, rather than this machine's memory; None if it is not what was written."""
    for path, inside in itertools.groupby(sorted(places), key=lambda place: place.path):
        try:
            file = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            yield from ((place, None) for place in inside)
            continue
        try:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            for place in inside:
                data = read_at(file, place.length, place.offset)
                yield place, data if digest_of(data) == place.digest else None
        finally:
            os.close(file)


def lost(places: Iterable[Place]) -> list[int]:
    return [place.piece for place, data in stored(places) if data is None]


class Output:
    """OUT.job/output and the spools, whose results are joined in it."""

    def __init__(self, folder: JobFolder, header: bytes, spooled: bool, ranks: Ranks) -> None:
        self._folder = folder
        self._header = header
        self._spooled = spooled
        self._ranks = ranks

    def _written(self, record: Record) -> Place:
        """Where the rank that computed a piece put it."""
        path = self._folder.path / f"{record.stem}.spool" if self._spooled else self._folder.output
        return Place(path, record.offset, record.length, record.digest, record.piece)

    def kept(self, records: list[Record]) -> list[Record]:
        """Those of this rank's share whose results are on the disk as they were written."""
        places = {self._written(record): record for record in self._share(records, self._ranks.rank)}
        return [places[place] for place, data in stored(places) if data is not None]

    def lost(self, done: dict[int, Record]) -> set[int]:
        """The pieces that have to be computed again, if all are done; joins them first. All ranks together."""
        if self._spooled and (found := self._on_all(lambda: self._join(done))):
            return found
        return self._on_all(lambda: self._check(done))

    def _on_all(self, function: Callable[[], list[int]]) -> set[int]:
        return set().union(*self._ranks.allgather(self._ranks.together(function)))

    def _share(self, items: list, rank: int) -> list:
        begin, end = (len(items) * r // self._ranks.size for r in (rank, rank + 1))
        return items[begin:end]

    def _joined(self, done: dict[int, Record]) -> list[Place]:
        """All results in the output, in the order in which ranks wrote them."""
        if not self._spooled:
            return [
                self._written(one) for one in sorted(done.values(), key=lambda one: (one.stem, one.piece))
            ]
        records = [done[piece] for piece in range(len(done))]
        ends = itertools.accumulate(record.length for record in records)
        return [
            Place(self._folder.output, end - record.length, record.length, record.digest, record.piece)
            for record, end in zip(records, ends)
        ]

    def _join(self, done: dict[int, Record]) -> list[int]:
        """Copies this rank's share of the spools to where the lengths of all pieces before say."""
        share = {place.piece: place for place in self._share(self._joined(done), self._ranks.rank)}
        missing = []
        output = os.open(self._folder.output, SHARED)
        try:
            for spool, data in stored(self._written(done[piece]) for piece in share):
                if data is None:
                    missing.append(spool.piece)
                else:
                    write_at(output, data, share[spool.piece].offset)
            os.fsync(output)
        finally:
            os.close(output)
        return missing

    def _check(self, done: dict[int, Record]) -> list[int]:
        """A rank reads what others wrote, most likely on other machines."""
        ranks = self._ranks
        found = lost(self._share(self._joined(done), (ranks.rank + ranks.size // 2) % ranks.size))
        header = Place(self._folder.output, 0, len(self._header), digest_of(self._header), HEADER)
        if ranks.rank == 0 and lost([header]):
            output = os.open(self._folder.output, SHARED)
            try:
                write_at(output, self._header, 0)
                os.fsync(output)
            finally:
                os.close(output)
            found.append(HEADER)
        return found
