"""The lines of a file by number, without holding the file: an index of pieces, and pieces."""

from __future__ import annotations

import hashlib
import os
from typing import NamedTuple

import numpy as np

from ._ranks import Ranks

BLOCK = 4 << 20  # bytes read at a time while scanning
CHUNK = 128 << 10  # bytes read at a time of a piece
EVERY = 64  # newlines between two places that a scan remembers


class InputChanged(RuntimeError):
    """The input is not what was indexed."""


def read_at(file: int, count: int, offset: int) -> bytes:
    """`count` bytes, fewer only at the end of the file."""
    parts = []
    while count > 0:
        part = os.pread(file, count, offset)
        if not part:
            break
        parts.append(part)
        count -= len(part)
        offset += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


class Index(NamedTuple):
    """Where pieces of `piece_lines` lines begin.

    A piece begins `skips` newlines after a byte: scanning keeps one place in EVERY newlines.
    """

    size: int
    lines: int
    piece_lines: int
    starts: np.ndarray
    skips: np.ndarray

    @property
    def pieces(self) -> int:
        return len(self.starts)

    def first(self, piece: int) -> int:
        """The number of a piece's first line, from 0."""
        return piece * self.piece_lines

    def count(self, piece: int) -> int:
        return min(self.piece_lines, self.lines - self.first(piece))


def _scan(file: int, begin: int, end: int) -> tuple[int, np.ndarray]:
    """The number of newlines in these bytes; and `begin`, then the offsets behind each EVERY-th newline."""
    count, places = 0, [np.array([begin], np.int64)]
    for offset in range(begin, end, BLOCK):
        block = read_at(file, min(BLOCK, end - offset), offset)
        if len(block) < min(BLOCK, end - offset):
            raise InputChanged("the input became shorter while it was read")
        newlines = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
        places.append(newlines[EVERY - 1 - count % EVERY :: EVERY] + (offset + 1))
        count += len(newlines)
    return count, np.concatenate(places)


class Scan(NamedTuple):
    """A rank's share of the bytes: the newlines before it and in it."""

    size: int
    lines: int  # of the file
    before: int
    count: int
    places: np.ndarray


def scan(file: int, ranks: Ranks) -> Scan:
    """Each rank reads its share of the bytes."""
    size = os.fstat(file).st_size
    begin, end = (size * r // ranks.size for r in (ranks.rank, ranks.rank + 1))
    count, places = ranks.together(lambda: _scan(file, begin, end))
    counts = ranks.allgather(count)
    unfinished = size > 0 and ranks.together(lambda: read_at(file, 1, size - 1)) != b"\n"
    return Scan(size, sum(counts) + unfinished, sum(counts[: ranks.rank]), count, places)


def index(found: Scan, piece_lines: int, ranks: Ranks) -> Index:
    """The index of the whole file, on every rank."""
    last = (found.lines - 1) // piece_lines  # the last piece
    pieces = np.arange(
        found.before // piece_lines + 1, min((found.before + found.count) // piece_lines, last) + 1
    )
    newlines = pieces * piece_lines - found.before  # that many of this share stand before the piece
    mine = found.places[newlines // EVERY], newlines % EVERY
    first = np.zeros(1 if found.lines else 0, np.int64)
    starts, skips = zip(*ranks.allgather(mine))
    return Index(
        found.size,
        found.lines,
        piece_lines,
        np.concatenate([first, *starts]),
        np.concatenate([first, *skips]),
    )


class Piece(NamedTuple):
    """Lines of the input; a bad one is None."""

    texts: list[str | None]
    bad: list[tuple[int, str]]  # number from 0 in the piece, reason
    digest: bytes  # of the piece's bytes


def _text(line: bytes, length: int, limit: int) -> tuple[str | None, str]:
    """A line without its newline as text, or why it is none."""
    if line.endswith(b"\r") and len(line) == length:
        line = line[:-1]
        length -= 1
    if length > limit:
        return None, f"{length} bytes, more than --max-line-bytes {limit}"
    if b"\0" in line:
        return None, f"a NUL, at byte {line.index(0) + 1}"
    try:
        return line.decode("utf-8"), ""
    except UnicodeDecodeError as error:
        return None, f"not UTF-8: {error.reason}, at byte {error.start + 1}"


def read_piece(file: int, index: Index, piece: int, limit: int) -> Piece:
    """The lines of a piece. A line longer than `limit` bytes is read but not held."""
    digest = hashlib.blake2b(digest_size=8)
    texts: list[str | None] = []
    bad: list[tuple[int, str]] = []
    wanted, skip, offset = index.count(piece), int(index.skips[piece]), int(index.starts[piece])
    held: list[bytes] = []
    length = 0

    def end_line() -> None:
        text, why = _text(b"".join(held), length, limit)
        if text is None:
            bad.append((len(texts), why))
        texts.append(text)

    while len(texts) < wanted:
        chunk = os.pread(file, CHUNK, offset)
        offset += len(chunk)
        parts = chunk.split(b"\n")
        for i, part in enumerate(parts):
            if not skip:
                digest.update(part)
                if length <= limit + 1:  # with \r
                    held.append(part)
                length += len(part)
            if i + 1 == len(parts):
                break  # goes on in the next chunk
            if skip:
                skip -= 1
                continue
            digest.update(b"\n")
            end_line()
            held, length = [], 0
            if len(texts) == wanted:
                break
        if not chunk:
            if len(texts) != wanted - 1 or not length:
                raise InputChanged("the input became shorter while the job was running")
            end_line()
    return Piece(texts, bad, digest.digest())
