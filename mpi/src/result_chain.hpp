// Partial results that travel: each rank has a partial result for each of its own blocks of keys;
// the merged result goes from the owner of a piece of keys to that of the next one.
#pragma once

#include "partial_result.hpp"

#include <headlane/mpi/sequence_cut.hpp>
#include <headlane/mpi/transport.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace headlane::mpi::internal {

/// Some queries of a batch element, over all of its keys.
struct ChainElement {
  std::span<const SequencePiece> pieces;  // of the keys, at least one
  PartialResult state;                    // shape of the merged result; no data
  /// For each of the rank's own pieces, in order: partial results of its blocks.
  std::vector<PartialResult> blocks;
};

/// Merges the partial results of all elements in the order of their keys. Afterwards the owner of
/// the last piece of an element has the result over all keys. Collective.
class ResultChain {
 public:
  ResultChain(Transport& transport, std::span<const ChainElement> elements, int num_threads);

  /// The result of an element whose last piece is this rank's.
  [[nodiscard]] AttentionPart result(std::size_t element) const { return results_[element].part(0); }

 private:
  void run_hop(std::size_t element, std::size_t hop);
  [[nodiscard]] PartialResult allocate(const PartialResult& like);

  Transport& transport_;
  std::span<const ChainElement> elements_;
  int num_threads_;
  std::vector<std::size_t> own_;        // of each element: own pieces merged so far
  std::vector<PartialResult> results_;  // of each element: the last one of this rank
  std::vector<std::vector<float>> memory_;
  std::vector<Transport::Ticket> sent_;
};

}  // namespace headlane::mpi::internal
