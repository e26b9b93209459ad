#include <headlane/mpi/sequence_cut.hpp>

#include "error.hpp"
#include "grid.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace headlane::mpi {

using namespace internal;
namespace {

void check(Index length, int ranks) {
  require(length >= 0, "SequenceCut: length is ", length);
  require(ranks >= 1, "SequenceCut: ranks is ", ranks, ", the minimum is 1");
}

/// Piece `number` of `count` of as equal sizes as the grid allows.
SequencePiece equal_piece(Index length, Index number, Index count, Index rank) {
  const Index blocks = ceil_div(length, grid), each = blocks / count, more = blocks % count;
  const auto at = [&](Index n) { return std::min(length, (each * n + more * n / count) * grid); };
  return {.rank = static_cast<int>(rank), .begin = at(number), .end = at(number + 1)};
}

}  // namespace

SequenceCut::SequenceCut(int ranks, std::vector<SequencePiece> pieces) : ranks_(ranks) {
  check(0, ranks);
  Index end = 0;
  std::vector<Index> lengths(static_cast<std::size_t>(ranks), 0);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    SequencePiece& piece = pieces[i];
    require(piece.begin == end, "SequenceCut: pieces[", i, "] begins at ", piece.begin, ", the one before ends at ",
            end);
    require(piece.end >= piece.begin, "SequenceCut: pieces[", i, "] ends at ", piece.end, ", it begins at ",
            piece.begin);
    require(piece.size() == 0 || piece.begin % grid == 0, "SequenceCut: pieces[", i, "] begins at ", piece.begin,
            ", which is not a multiple of ", grid);
    require(piece.rank >= 0 && piece.rank < ranks, "SequenceCut: pieces[", i, "] has rank ", piece.rank, ", there are ",
            ranks);
    end = piece.end;
    Index& local = lengths[static_cast<std::size_t>(piece.rank)];
    const bool continues = !pieces_.empty() && pieces_.back().rank == piece.rank;
    if (continues) pieces_.back().end = end;
    else if (piece.size() != 0) pieces_.push_back({piece.rank, piece.begin, piece.end, local});
    local += piece.size();
  }
}

SequenceCut SequenceCut::contiguous(Index length, int ranks) {
  check(length, ranks);
  std::vector<SequencePiece> pieces;
  for (Index r = 0; r < ranks; ++r) pieces.push_back(equal_piece(length, r, ranks, r));
  return {ranks, std::move(pieces)};
}

SequenceCut SequenceCut::cyclic(Index length, int ranks) {
  check(length, ranks);
  // Pieces of 2048 positions or more: each packs every chunk of keys, 5 % of the time with 512
  // rows, 1 % with 2048. With fewer than these ranks would wait: one is at most a chunk ahead.
  constexpr Index most = 16, rows = 2048;
  const Index blocks = ceil_div(length, grid), fewest = std::min(4 * (Index{ranks} - 1), most);
  const Index wanted = std::clamp(length / rows / ranks, fewest, most);
  const Index of_each = std::clamp(blocks / ranks, Index{1}, std::max(wanted, Index{1})), count = of_each * ranks;
  std::vector<SequencePiece> pieces;
  for (Index i = 0; i < count; ++i) {
    // Each rank is the first of as many turns, so that no one has the later pieces of all of them.
    // The next owner is nearly always the right neighbour, which keys reach first.
    const Index turn = i / ranks, first = turn * ranks / of_each;
    pieces.push_back(equal_piece(length, i, count, (i + first) % ranks));
  }
  return {ranks, std::move(pieces)};
}

Index SequenceCut::length_of(int rank) const {
  Index length = 0;
  for (const SequencePiece& piece : pieces_) length += piece.rank == rank ? piece.size() : 0;
  return length;
}

}  // namespace headlane::mpi
