// SequenceCut: which positions of a sequence each rank has.
#pragma once

#include <headlane/export.h>
#include <headlane/index.hpp>

#include <span>
#include <vector>

namespace headlane::mpi {

/// Adjacent positions of a sequence that one rank has.
struct SequencePiece {
  int rank = 0;
  Index begin = 0, end = 0;
  Index local = 0;  ///< index of `begin` among the rank's own positions; set by SequenceCut

  [[nodiscard]] Index size() const { return end - begin; }
  bool operator==(const SequencePiece&) const = default;
};

/// How the positions 0 … length-1 are cut over ranks. A rank has its pieces one after the other, in
/// the order of their positions.
///
/// The cuts lie on a grid of 512 positions, the blocks of keys of attention(): therefore the bits
/// of a result do not depend on the cut.
class HEADLANE_API SequenceCut {
 public:
  /// A sequence without positions.
  SequenceCut() = default;
  /// Pieces in the order of their positions, which they cover; empty pieces are dropped.
  /// Errors: std::invalid_argument if a piece does not begin where the one before ends, begins at
  ///   no multiple of 512 or has a rank that is not 0 … ranks-1.
  SequenceCut(int ranks, std::vector<SequencePiece> pieces);

  /// One piece for each rank, of as equal sizes as the grid allows.
  static SequenceCut contiguous(Index length, int ranks);
  /// Pieces that go to the ranks in turn, up to 16 for each: for causal attention. Later queries
  /// see more keys, and keys travel in the order of their positions: all ranks have about as much
  /// to do with each of them. (With two pieces, the r-th from either end, as much in total, but not
  /// at the same time: 3/4 of the speed on two ranks, 2/3 on many.)
  static SequenceCut cyclic(Index length, int ranks);

  [[nodiscard]] Index length() const { return pieces_.empty() ? 0 : pieces_.back().end; }
  [[nodiscard]] int ranks() const { return ranks_; }
  /// In the order of their positions.
  [[nodiscard]] std::span<const SequencePiece> pieces() const { return pieces_; }
  /// The number of positions that a rank has.
  [[nodiscard]] Index length_of(int rank) const;

  bool operator==(const SequenceCut&) const = default;

 private:
  int ranks_ = 1;
  std::vector<SequencePiece> pieces_;
};

}  // namespace headlane::mpi
