// Arrays of bfloat16 and float16: the library reads and writes copies of them in float32.
#pragma once

#include <headlane/dtype.hpp>
#include <headlane/view.hpp>

#include <memory>

namespace headlane::python {

/// The memory of an array, of any type of elements.
using Memory = AnyView<void>;

/// A copy of an array in float32, to be filled or to be written back. Strides of 0 are kept: an
/// array that is broadcast is copied once. Axes are in the same order in memory.
class FloatCopy {
 public:
  /// `type`: bfloat16 or float16. Throws std::bad_alloc if there is no memory. The copy has no
  /// values yet.
  FloatCopy(DType type, const Memory& array, bool is_read, bool is_written);

  [[nodiscard]] float* data() const { return memory_.get(); }
  [[nodiscard]] Index stride(std::size_t axis) const { return copy_.strides[axis]; }

  /// Fills the copy if it is read; exact. `threads`: the maximum number, 0 for the setting of the
  /// process.
  void widen(int threads) const;
  /// Rounds the copy to the array if it is written: to nearest, ties to even.
  void round(int threads) const;

 private:
  DType type_;
  bool is_read_, is_written_;
  Memory array_;  // with axes of stride 0 shortened to 1, as in the copy
  std::unique_ptr<float[]> memory_;
  AnyView<float> copy_;
};

}  // namespace headlane::python
