// forward() of layers on tensors of bfloat16 and float16, by way of float32 copies.
#pragma once

#include "core/check.hpp"
#include "core/convert.hpp"
#include "layers/forward_check.hpp"

#include <cstdint>

namespace headlane::internal {

/// The tensors of a call, all of one type. What a function does not have has no elements.
struct HalfRows {
  View<const std::uint16_t, 3> x;
  View<std::uint16_t, 3> y;
  DType type;
  View<const std::uint16_t, 3> memory = {};

  [[nodiscard]] ForwardOperands operands(Caller caller) const {
    return {caller.operand("x", x), caller.operand("y", y), caller.operand("memory", memory)};
  }
};

template <class T>
HalfRows half_rows(const View<const T, 3>& x, const View<T, 3>& y, const View<const T, 3>& memory = {}) {
  return {bits_of(x), bits_of(y), type_of<T>, bits_of(memory)};
}

/// Float32 copies of checked tensors; y is not filled. They are in scratch memory: a thread has one
/// at a time.
class WideRows {
 public:
  WideRows(const HalfRows& rows, int num_threads);
  /// Rounds y to the tensor of 16 bits.
  void round() const;

  View<const float, 3> x, memory;
  View<float, 3> y;

 private:
  HalfCopies copies_;
  HalfOutput to_;
};

}  // namespace headlane::internal
