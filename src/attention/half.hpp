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

/// attention() on behalf of `caller`, of tensors or of sequences of a cache.
void attention_halves(Caller caller, HalfTensors x, const KeysAndValues& cached, const AttentionOptions& options);

}  // namespace headlane::internal
