// t5_bucket: the entry, and the boundaries of the buckets.
#include "position/t5_bucket.hpp"

#include "core/call_scope.hpp"
#include "position/double_double.hpp"

#include <headlane/limits.hpp>
#include <headlane/position.hpp>

#include <algorithm>
#include <array>
#include <cmath>

namespace headlane {
namespace internal {
namespace {

/// n, exactly; n >= 0.
DoubleDouble exact(Index n) {
  const Index low = n & 0xffffffff;
  return DoubleDouble::of(static_cast<double>(n - low), static_cast<double>(low));
}

DoubleDouble log_of(DoubleDouble x) { return log(x.high) + DoubleDouble{x.low / x.high}; }

/// x rounded up to an integer, 0 <= x <= max. An x within its error of an integer counts as that
/// integer: roots are integers, or further from the next one than that.
Index rounded_up(DoubleDouble x, Index max) {
  if (x.high >= 0x1p63) return max;
  const double whole = std::floor(x.high), rest = (x.high - whole) + x.low, more = std::floor(rest);
  const Index below = static_cast<Index>(whole) + static_cast<Index>(more);
  return std::min(max, rest - more <= x.high * 0x1p-94 ? below : below + 1);
}

/// Computes where the buckets of one direction begin: bucket b <= single at b, the others at the
/// smallest distance for which single + floor(log(distance / single) / log(max_distance / single) ·
/// (buckets - single)) is b. That is the root single^(1 - share) · max_distance^share, rounded up,
/// with share = (b - single) / (buckets - single).
void find_starts(Index buckets, Index max_distance, Index* starts) {
  const Index single = buckets / 2, others = buckets - single;
  const DoubleDouble max = exact(max_distance), range = log_of(exact(single)) + DoubleDouble{-1} * log_of(max);
  for (Index b = 0; b < buckets; ++b) {
    starts[b] = b;
    if (b <= single) continue;
    const DoubleDouble rest{static_cast<double>(buckets - b)}, count{static_cast<double>(others)};
    starts[b] = rounded_up(max * exp(range * rest / count), max_distance);
  }
}

/// The bucket among those of one direction.
Index bucket_of(Index distance, Index buckets, Index max_distance) {
  const Index* starts = t5_bucket_starts(buckets, max_distance);
  return std::upper_bound(starts, starts + buckets, distance) - starts - 1;
}

}  // namespace

const Index* t5_bucket_starts(Index buckets, Index max_distance) {
  struct Kept {
    Index buckets, max_distance;
    std::array<Index, max_t5_buckets> starts;
  };
  thread_local Kept kept{};
  if (kept.buckets != buckets || kept.max_distance != max_distance) {
    find_starts(buckets, max_distance, kept.starts.data());
    kept.buckets = buckets;
    kept.max_distance = max_distance;
  }
  return kept.starts.data();
}

void check_t5_buckets(Caller caller, Index buckets, Index max_distance, bool bidirectional) {
  const Index min = bidirectional ? 4 : 2, single = buckets / min;
  caller.require(buckets >= min && buckets % (bidirectional ? 2 : 1) == 0 && buckets <= max_t5_buckets, buckets,
                 " buckets, there must be ", min, " to ", max_t5_buckets, bidirectional ? ", an even number" : "");
  caller.require(max_distance > single, "max_distance is ", max_distance, ", but ", single,
                 " distances have buckets of their own");
}

}  // namespace internal

using namespace internal;

Index t5_bucket(Index distance, Index buckets, Index max_distance, bool bidirectional) {
  const CallScope scope;
  check_t5_buckets("t5_bucket", buckets, max_distance, bidirectional);
  if (!bidirectional)
    return distance >= 0 ? 0 : bucket_of(distance < -max_distance ? max_distance : -distance, buckets, max_distance);
  const Index half = buckets / 2;
  if (distance > 0) return half + bucket_of(distance, half, max_distance);
  return bucket_of(distance < -max_distance ? max_distance : -distance, half, max_distance);
}

}  // namespace headlane
