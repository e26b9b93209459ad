// T5's relative position bias: which distances share a bucket.
#pragma once

#include <headlane/attention.hpp>

#include <array>

namespace headlane {

/// Of one direction, where each bucket begins.
class RelativeRuns {
 public:
  static constexpr Index most_buckets = 1024;

  /// Of a bias without a table: nothing.
  explicit RelativeRuns(const RelativeBias& bias);

  /// to[i] = the bias of `head` for the distance first + i.
  void fill(const View<const float, 2>& table, Index head, Index first, Index count, float* to) const;

 private:
  Index buckets_ = 0;  // of one direction
  bool bidirectional_;
  std::array<Index, most_buckets> start_;  // the least distance of a bucket
};

/// Throws std::invalid_argument: t5_bucket's requirements in the name of `function`.
void check_buckets(const char* function, Index buckets, Index max_distance, bool bidirectional);

}  // namespace headlane
