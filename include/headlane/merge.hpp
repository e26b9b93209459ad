// Attention over keys that were attended to in parts: shared prefixes, keys spread over machines.
#pragma once

#include <headlane/export.h>
#include <headlane/view.hpp>

#include <span>

namespace headlane {

/// The result of attention() for some queries over some of their keys.
struct AttentionPart {
  View<const float, 4> out;  ///< [batch, q_heads, q_length, value_dim], any strides
  View<const float, 3> lse;  ///< [batch, q_heads, q_length], any strides
  View<const float, 3> sum =
      {};  ///< as lse, if attention() was given `sum`: out is then not divided, and lse is the largest score
};

struct MergeOptions {
  View<float, 3> lse = {};  ///< if data is not null: [batch, q_heads, q_length], receives the log-sum-exp over all keys
  View<float, 3> sum = {};  ///< if data is not null, with lse: the result is a part again, as attention()'s option sum
  View<const float, 1> sinks = {};  ///< if data is not null: [q_heads], as attention()'s option; not together with sum
  int num_threads = 0;              ///< maximum number of threads of this call; 0: num_threads() (runtime.hpp)
};

/// out = attention over the keys of all parts, which have none in common: Σ_i exp(lse_i - lse) · out_i, lse = log Σ_i exp(lse_i).
/// A row that saw no key in a part (lse -inf, and out 0, as attention() gives them) has nothing from it; in no part: 0 and log-sum-exp -inf.
///
/// Shapes: out and each parts[i].out alike, any strides. At least one part.
/// Aliasing: parts may overlap each other; outputs must overlap nothing.
/// Arithmetic: parts are merged in their order, as attention() merges its blocks of 512 keys. The bits are those of attention() over all keys
///   if parts with `sum` are cut on that grid, and each part but the first is one block of it. (Sums of rounded numbers depend on their order:
///   two parts of several blocks each agree with the whole within the error bound, not in the last bit.)
/// Error, u = 2^-24, P parts: beside that of the parts at most 2·(max |lse_i| + 4·P) · u · Σ_i w_i |out_i|, and (max |lse_i| + 4·P + 8) · u
///   in lse; max |lse_i| only where a part has no `sum`.
/// Source: Milakov and Gimelshein 2018; Dao et al. 2023 (Flash-Decoding).
/// Memory: allocates nothing once warm. Errors: std::invalid_argument before anything is written; std::bad_alloc.
HEADLANE_API void merge(std::span<const AttentionPart> parts, View<float, 4> out, const MergeOptions& options = {});

}  // namespace headlane
