// A call of attention over a cut sequence, with checked arguments.
#pragma once

#include "messages.hpp"
#include "part_options.hpp"

#include <headlane/mpi/attention.hpp>
#include <headlane/view.hpp>

#include <vector>

namespace headlane::mpi::internal {

/// The views are those of the rank.
struct SequenceCall {
  View<const float, 4> q, k, v;
  View<float, 4> out;
  const AttentionCut& cut;
  const AttentionOptions& options;
  int rank = 0;

  [[nodiscard]] Index batch() const { return q.shape[0]; }
  [[nodiscard]] Index q_heads() const { return q.shape[1]; }
  [[nodiscard]] Index kv_heads() const { return k.shape[1]; }
  [[nodiscard]] Index head_dim() const { return q.shape[3]; }
  [[nodiscard]] Index value_dim() const { return v.shape[3]; }
  /// Floats of a key and its value, in all batch elements and kv heads.
  [[nodiscard]] Index floats_of_key() const { return batch() * kv_heads() * (head_dim() + value_dim()); }
  /// Floats of a query's partial result in all heads of a batch element: out, maximum, sum.
  [[nodiscard]] Index floats_of_state() const { return q_heads() * (value_dim() + 2); }
  /// The queries of a rank. Without a cut all of them, whatever the rank.
  [[nodiscard]] std::vector<Rows> rows_of(int of_rank) const;
};

/// The number of positions of each rank.
std::vector<Index> lengths_of(const SequenceCut& cut);

/// Keys and values travel (key_ring.cpp).
void run_key_ring(Messages& messages, const SequenceCall& call);
/// The plan of each rank. Queries are cut.
std::vector<SequencePlan> plans_of_key_ring(const SequenceCall& call);

/// Partial results travel (result_call.cpp).
void run_result_chain(Messages& messages, const SequenceCall& call);
std::vector<SequencePlan> plans_of_result_chain(const SequenceCall& call);

}  // namespace headlane::mpi::internal
