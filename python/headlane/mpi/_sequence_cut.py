"""SequenceCut: which positions of a sequence each rank has."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .. import _core


@dataclass(frozen=True)
class SequenceCut:
    """How the positions of a sequence are cut over ranks, on a grid of 512 positions.

    A rank has its pieces one after the other, in the order of their positions.

    Args:
        ranks: The number of ranks.
        pieces: Tuples (rank, begin, end), in the order of the positions, which they cover. Each begins at
            a multiple of 512. Empty ones are dropped, adjacent ones of a rank joined.
    """

    ranks: int
    pieces: tuple[tuple[int, int, int], ...]

    def __init__(self, ranks: int, pieces: Iterable[tuple[int, int, int]]) -> None:
        object.__setattr__(self, "ranks", ranks)
        object.__setattr__(self, "pieces", tuple(pieces))
        object.__setattr__(self, "pieces", _core.mpi_cut("pieces", None, None, self))

    @classmethod
    def contiguous(cls, length: int, ranks: int) -> SequenceCut:
        """One piece for each rank, of as equal sizes as the grid allows."""
        return cls(ranks, _core.mpi_cut("contiguous", length, ranks, None))

    @classmethod
    def cyclic(cls, length: int, ranks: int) -> SequenceCut:
        """Pieces that go to the ranks in turn, up to 16 for each: for causal attention, in which later
        queries see more keys.
        """
        return cls(ranks, _core.mpi_cut("cyclic", length, ranks, None))

    @property
    def length(self) -> int:
        """The number of positions."""
        return self.pieces[-1][2] if self.pieces else 0

    def length_of(self, rank: int) -> int:
        """The number of positions that a rank has."""
        return sum(end - begin for owner, begin, end in self.pieces if owner == rank)

    def positions(self, rank: int) -> np.ndarray:
        """The positions of a rank, int64 [length_of(rank)]: x[:, :, cut.positions(rank)] are its rows."""
        own = [np.arange(begin, end) for owner, begin, end in self.pieces if owner == rank]
        return np.concatenate(own) if own else np.empty(0, np.int64)
