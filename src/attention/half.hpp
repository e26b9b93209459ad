// Attention of tensors of bfloat16 and float16.
#pragma once

#include "attention/problem.hpp"
#include "core/convert.hpp"

namespace headlane::internal {

/// The tensors of a call, all of one type. With a cache, k and v are none.
struct HalfTensors {
  View<const std::uint16_t, 4> q, k, v;
  View<std::uint16_t, 4> out;
  DType type;
};

/// Whether the bias is not of float32.
inline bool has_half_bias(const AttentionOptions& options) {
  return options.bias && options.bias.type != DType::float32;
}

/// The options of a checked call, with a float32 copy of such a bias in scratch memory.
AttentionOptions with_wide_bias(const AttentionOptions& options);

/// attention() on behalf of `caller`, of tensors or of sequences of a cache.
void attention_halves(Caller caller, HalfTensors x, const KeysAndValues& cached, const AttentionOptions& options);

}  // namespace headlane::internal
