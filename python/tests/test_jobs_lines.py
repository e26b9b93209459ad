"""The index of lines, on several ranks, with blocks of a few bytes."""

import os
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("headlane.models", reason="headlane was built without its models")
from headlane.jobs import _lines  # noqa: E402
from headlane.jobs._ranks import Ranks  # noqa: E402


class ThreadRanks(Ranks):
    """Ranks that are threads of this process."""

    def __init__(self, rank, barrier, values):
        super().__init__()
        self.rank, self.size = rank, len(values)
        self._barrier, self._values = barrier, values

    def allgather(self, value, waiting=None):
        self._values[self.rank] = value
        self._barrier.wait(10)
        found = list(self._values)
        self._barrier.wait(10)
        return found


def indexes(file, size, piece_lines):
    """That of each rank."""
    barrier, values, found = threading.Barrier(size), [None] * size, [None] * size

    def work(rank):
        ranks = ThreadRanks(rank, barrier, values)
        found[rank] = _lines.index(_lines.scan(file, ranks), piece_lines, ranks)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@settings(max_examples=300)
@given(
    lines=st.lists(st.text("ab\réß", max_size=9)),
    ended=st.booleans(),
    size=st.integers(1, 5),
    piece_lines=st.integers(1, 9),
    block=st.integers(1, 20),
    chunk=st.integers(1, 20),
    every=st.integers(1, 5),
)
def test_pieces_have_the_lines_of_the_file(lines, ended, size, piece_lines, block, chunk, every):
    data = "\n".join(lines) + "\n" * ended
    wanted = (data[:-1] if data.endswith("\n") else data).split("\n") if data else []
    wanted = [line[:-1] if line.endswith("\r") else line for line in wanted]
    file = os.memfd_create("text")
    with pytest.MonkeyPatch.context() as patch, os.fdopen(file, "wb") as text:
        patch.setattr(_lines, "BLOCK", block)
        patch.setattr(_lines, "CHUNK", chunk)
        patch.setattr(_lines, "EVERY", every)
        text.write(data.encode())
        text.flush()
        for index in indexes(file, size, piece_lines):
            pieces = [_lines.read_piece(file, index, piece, 99) for piece in range(index.pieces)]
            assert [line for piece in pieces for line in piece.texts] == wanted
            assert all(len(piece.texts) == piece_lines for piece in pieces[:-1])
        assert [piece.digest for piece in pieces] == [
            _lines.read_piece(file, index, piece, 1).digest for piece in range(index.pieces)
        ]
