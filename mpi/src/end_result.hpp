// The end results of some queries, in memory that can be sent.
#pragma once

#include "messages.hpp"
#include "partial_result.hpp"

#include <headlane/merge.hpp>
#include <headlane/view.hpp>

#include <cstddef>

namespace headlane::mpi::internal {

/// Results of batch elements, one after the other: out, then lse if wanted.
class EndResults {
 public:
  EndResults(const Messages& messages, Index batch, Index heads, Index rows, Index value_dim, bool with_lse);

  /// Divides the merged result of an element. query_length: as for clear_padding().
  void finish(Index element, const AttentionPart& part, const View<const float, 1>& sinks, const Rows& rows,
              const View<const Index, 1>& query_lengths, int num_threads);

  /// Copies the results to rows of the caller's tensors, from row `first` on.
  void copy_to(const View<float, 4>& to, const View<float, 3>& to_lse, Index first) const;

  /// The memory of the elements first … end-1.
  [[nodiscard]] float* data(Index first) const { return memory_.data() + first * floats_of_element(); }
  [[nodiscard]] std::size_t bytes(Index first, Index end) const {
    return static_cast<std::size_t>((end - first) * floats_of_element()) * sizeof(float);
  }

 private:
  [[nodiscard]] Index floats_of_element() const { return heads_ * rows_ * (value_dim_ + (with_lse_ ? 1 : 0)); }
  [[nodiscard]] View<float, 4> out() const;
  [[nodiscard]] View<float, 3> lse() const;

  Index batch_, heads_, rows_, value_dim_;
  bool with_lse_;
  MessageMemory memory_;
};

}  // namespace headlane::mpi::internal
