// Limits on sizes, the same for every instruction set. Beyond them a call is an error.
#pragma once

#include <headlane/index.hpp>

namespace headlane {

/// head_dim and value_dim of attention, of a KvCache and of a layer, and key_dim and value_dim of
/// linear attention, are 1 … max_head_dim.
inline constexpr Index max_head_dim = 512;

/// The width of a causal convolution is 1 … max_convolution_width.
inline constexpr Index max_convolution_width = 64;

/// Buckets of T5's relative position bias, both directions together.
inline constexpr Index max_t5_buckets = 1024;

/// Distance between a key and a query that ALiBi multiplies: the largest up to which a float
/// represents every integer.
inline constexpr Index max_alibi_distance = Index{1} << 24;

}  // namespace headlane
