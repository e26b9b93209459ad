"""How the positions of a sequence are cut over ranks, as headlane::mpi::SequenceCut does."""

from __future__ import annotations

from dataclasses import dataclass

GRID = 512  # cuts lie on multiples of it: the blocks of keys of attention


@dataclass(frozen=True)
class Piece:
    rank: int
    begin: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.begin


def contiguous(length: int, ranks: int) -> list[Piece]:
    return _equal(length, list(range(ranks)))


def zigzag(length: int, ranks: int) -> list[Piece]:
    """Two pieces for each rank, one from either end: the case `zigzag` of bench_mpi.cpp."""
    return _equal(length, [*range(ranks), *reversed(range(ranks))])


def cyclic(length: int, ranks: int, most: int = 16) -> list[Piece]:
    wanted = max(min(4 * (ranks - 1), most), min(length // 2048 // ranks, most))
    of_each = max(min(-(-length // GRID) // ranks, max(wanted, 1)), 1)
    turns = (divmod(n, ranks) for n in range(of_each * ranks))
    return _equal(length, [(place + turn * ranks // of_each) % ranks for turn, place in turns])


def _equal(length: int, owners: list[int]) -> list[Piece]:
    """Pieces of as equal sizes as the grid allows."""
    blocks = -(-length // GRID)
    bounds = [min(length, blocks * n // len(owners) * GRID) for n in range(len(owners) + 1)]
    return _merged([Piece(*piece) for piece in zip(owners, bounds, bounds[1:])])


def _merged(pieces: list[Piece]) -> list[Piece]:
    """Without empty pieces; adjacent ones of one rank are one."""
    merged: list[Piece] = []
    for piece in pieces:
        if merged and merged[-1].rank == piece.rank:
            merged[-1] = Piece(piece.rank, merged[-1].begin, piece.end)
        elif piece.size > 0:
            merged.append(piece)
    return merged


def chunks(pieces: list[Piece], bytes_of_key: int, chunk_bytes: int) -> list[list[Piece]]:
    """The parts of the pieces in each chunk of at most chunk_bytes, or of one block of keys if that is more."""
    size = max(chunk_bytes // bytes_of_key // GRID, 1) * GRID
    found: list[list[Piece]] = []
    for piece in pieces:
        begin = piece.begin
        while begin < piece.end:
            end = min((begin // size + 1) * size, piece.end)
            if begin % size == 0:
                found.append([])
            found[-1].append(Piece(piece.rank, begin, end))
            begin = end
    return found


def pairs(rows: Piece, keys: Piece, causal: bool) -> int:
    """Pairs of a query and a key that it sees."""
    if not causal:
        return rows.size * keys.size

    def before(row: int) -> int:
        """Of rows 0 … row-1."""
        return _triangle(row - keys.begin) - _triangle(row - keys.end)

    return before(rows.end) - before(rows.begin)


def _triangle(n: int) -> int:
    return n * (n + 1) // 2 if n > 0 else 0
