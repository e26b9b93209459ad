// T5's relative position bias: runs of distances that share a bucket.
#pragma once

#include "position/t5_bucket.hpp"

#include <headlane/attention_options.hpp>
#include <headlane/limits.hpp>

#include <array>

namespace headlane::internal {

/// Where each bucket of a direction begins; nothing for a bias without a table.
class RelativeRuns {
 public:
  explicit RelativeRuns(const RelativeBias& bias);

  /// to[i] = the bias of `head` for the distance first + i.
  void fill(const View<const float, 2>& table, Index head, Index first, Index count, float* to) const;

 private:
  Index buckets_ = 0;  // of one direction
  bool bidirectional_;
  std::array<Index, max_t5_buckets> start_;  // the smallest distance of each bucket
};

}  // namespace headlane::internal
