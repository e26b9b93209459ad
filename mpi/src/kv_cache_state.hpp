// The blocks of a cache that is cut over ranks.
#pragma once

#include <headlane/kv_cache.hpp>
#include <headlane/mpi/kv_cache.hpp>

#include <map>
#include <vector>

namespace headlane::mpi {

/// Each own block of 512 keys is a sequence of a headlane::KvCache: attention() then returns a
/// partial result for each.
struct KvCache::State {
  struct Sequence {
    std::vector<SequencePiece> pieces;  // runs of blocks, in the order of their positions
    std::vector<Index> blocks;          // own ones, in the order of their positions
    [[nodiscard]] Index length() const { return pieces.empty() ? 0 : pieces.back().end; }
  };

  int rank, ranks;
  headlane::KvCache own;
  std::map<Index, Sequence> sequences;
  std::vector<Index> free;  // numbers of removed sequences

  [[nodiscard]] Sequence& at(const char* function, Index sequence);
  /// Its number; without memory, nothing has changed.
  Index insert(Sequence&& sequence);
};

}  // namespace headlane::mpi
