// Partial results that travel: each rank has a partial result for each of its own blocks of keys;
// the merged result goes from the owner of a piece of keys to that of the next one.
#pragma once

#include "messages.hpp"
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
  PartialResult state;                    // shape of the merged result, that of all elements; no data
  /// For each of the rank's own pieces, in order: partial results of its blocks.
  std::vector<PartialResult> blocks;
};

/// Merges the partial results of all elements in the order of their keys. Afterwards the owner of
/// the last piece of an element has the result over all keys. Collective.
class ResultChain {
 public:
  ResultChain(Messages& messages, std::span<const ChainElement> elements, int num_threads);

  /// The result of an element whose last piece is this rank's.
  [[nodiscard]] AttentionPart result(std::size_t element) const { return results_[element].part(0); }

 private:
  void run_hop(std::size_t element, std::size_t hop);

  Messages& messages_;
  std::span<const ChainElement> elements_;
  int num_threads_;
  std::vector<std::size_t> own_;        // of each element: own pieces merged so far
  std::vector<PartialResult> results_;  // of each element: the last one of this rank
  MessageMemory received_;              // one result: it is merged before the next one is received
  std::vector<MessageMemory> memory_;   // of the merged results
  std::vector<Transport::Ticket> sent_;
};

}  // namespace headlane::mpi::internal
