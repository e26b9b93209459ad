// T5's relative position bias: which distances share a bucket.
#pragma once

#include "position/t5_bucket.hpp"

#include <headlane/attention_options.hpp>
#include <headlane/limits.hpp>

#include <array>

namespace headlane::internal {

/// Of one direction, where each bucket begins.
class RelativeRuns {
 public:
  /// Of a bias without a table: nothing.
  explicit RelativeRuns(const RelativeBias& bias);

  /// to[i] = the bias of `head` for the distance first + i.
  void fill(const View<const float, 2>& table, Index head, Index first, Index count, float* to) const;

 private:
  Index buckets_ = 0;  // of one direction
  bool bidirectional_;
  std::array<Index, max_t5_buckets> start_;  // the least distance of a bucket
};

}  // namespace headlane::internal
