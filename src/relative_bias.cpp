#include "relative_bias.hpp"

#include "check.hpp"

#include <headlane/position.hpp>

#include <algorithm>
#include <cmath>

namespace headlane {
namespace {

/// Of the buckets of one direction.
Index bucket_of(Index distance, Index buckets, Index max_distance) {
  const Index single = buckets / 2;
  if (distance < single) return distance;
  if (distance >= max_distance) return buckets - 1;
  // Where the exact value is a whole number (distances that are the single ones times a root of 2, say), the logarithms may be just
  // below it; no other value is so close to one.
  const double single_buckets = static_cast<double>(single);
  const double share = std::log(static_cast<double>(distance) / single_buckets) /
                       std::log(static_cast<double>(max_distance) / single_buckets);
  return std::min(single + static_cast<Index>(share * static_cast<double>(buckets - single) + 1e-9), buckets - 1);
}

}  // namespace

void check_buckets(const char* function, Index buckets, Index max_distance, bool bidirectional) {
  const Index least = bidirectional ? 4 : 2, single = buckets / least;
  require(buckets >= least && buckets % (bidirectional ? 2 : 1) == 0 && buckets <= RelativeRuns::most_buckets, function,
          ": ", buckets, " buckets, there must be ", least, " to ", RelativeRuns::most_buckets,
          bidirectional ? ", an even number" : "");
  require(max_distance > single, function, ": max_distance is ", max_distance, ", but ", single,
          " distances have buckets of their own");
}

Index t5_bucket(Index distance, Index buckets, Index max_distance, bool bidirectional) {
  check_buckets("t5_bucket", buckets, max_distance, bidirectional);
  if (!bidirectional)
    return distance >= 0 ? 0 : bucket_of(distance < -max_distance ? max_distance : -distance, buckets, max_distance);
  const Index half = buckets / 2;
  if (distance > 0) return half + bucket_of(distance, half, max_distance);
  return bucket_of(distance < -max_distance ? max_distance : -distance, half, max_distance);
}

RelativeRuns::RelativeRuns(const RelativeBias& bias) : bidirectional_(bias.bidirectional) {
  if (bias.table.data == nullptr) return;
  buckets_ = bias.table.shape[1] / (bidirectional_ ? 2 : 1);
  const Index single = buckets_ / 2;
  for (Index b = 0; b < buckets_; ++b) {
    auto& start = start_[static_cast<std::size_t>(b)];
    const double share = static_cast<double>(b - single) / static_cast<double>(buckets_ - single);
    const double ratio = static_cast<double>(bias.max_distance) / static_cast<double>(single);
    start = b;
    if (b <= single) continue;
    // Next to this one; further away for a max_distance that a double does not tell from its neighbours.
    const auto near = static_cast<Index>(static_cast<double>(single) * std::pow(ratio, share));
    const auto reaches = [&](Index distance) { return bucket_of(distance, buckets_, bias.max_distance) >= b; };
    Index below = std::max(near - 2, single);
    start = std::min(near + 1, bias.max_distance);
    if (reaches(below)) below = single;
    if (!reaches(start)) start = bias.max_distance;
    while (start - below > 1) {
      const Index middle = below + (start - below) / 2;
      (reaches(middle) ? start : below) = middle;
    }
  }
}

void RelativeRuns::fill(const View<const float, 2>& table, Index head, Index first, Index count, float* to) const {
  const Index* starts = start_.data();
  const auto value = [&](Index bucket) { return table.data[head * table.strides[0] + bucket * table.strides[1]]; };
  for (Index i = 0; i < count;) {
    const Index distance = first + i, magnitude = distance < 0 ? -distance : distance;
    if (distance >= 0 && !bidirectional_) return std::fill_n(to + i, count - i, value(0)), void();
    const Index bucket = std::upper_bound(starts, starts + buckets_, magnitude) - starts - 1;
    Index end = count;  // of the distances in this bucket
    if (distance < 0) end = i + magnitude - starts[bucket] + 1;
    else if (bucket + 1 < buckets_) end = i + starts[bucket + 1] - magnitude;
    end = std::min(end, count);
    std::fill(to + i, to + end, value(distance > 0 ? buckets_ + bucket : bucket));
    i = end;
  }
}

}  // namespace headlane
