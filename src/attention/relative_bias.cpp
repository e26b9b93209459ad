#include "attention/relative_bias.hpp"

#include <algorithm>

namespace headlane::internal {

RelativeRuns::RelativeRuns(const RelativeBias& bias) : bidirectional_(bias.bidirectional) {
  if (!bias.table) return;
  buckets_ = bias.table.shape[1] / (bidirectional_ ? 2 : 1);
  std::copy_n(t5_bucket_starts(buckets_, bias.max_distance), buckets_, start_.begin());
}

void RelativeRuns::fill(const View<const float, 2>& table, Index head, Index first, Index count, float* to) const {
  const Index* starts = start_.data();
  const auto value = [&](Index bucket) { return table.data[head * table.strides[0] + bucket * table.strides[1]]; };
  for (Index i = 0; i < count;) {
    const Index distance = first + i, magnitude = distance < 0 ? -distance : distance;
    if (distance >= 0 && !bidirectional_) return std::fill_n(to + i, count - i, value(0)), void();
    const Index bucket = std::upper_bound(starts, starts + buckets_, magnitude) - starts - 1;
    Index end = count;  // of the run in this bucket
    if (distance < 0) end = i + magnitude - starts[bucket] + 1;
    else if (bucket + 1 < buckets_) end = i + starts[bucket + 1] - magnitude;
    end = std::min(end, count);
    std::fill(to + i, to + end, value(distance > 0 ? buckets_ + bucket : bucket));
    i = end;
  }
}

}  // namespace headlane::internal
