// A right operand of gemm, packed once for many products: the weights of a linear layer.
#pragma once

#include <headlane/dtype.hpp>
#include <headlane/export.h>
#include <headlane/view.hpp>

#include <cstddef>
#include <memory>
#include <utility>

namespace headlane {

namespace detail {

/// A size that moving resets to 0, so that an object that was moved from equals a
/// default-constructed one.
class Size {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): it is an Index
  constexpr Size(Index value = 0) noexcept : value_(value) {}
  constexpr Size(const Size&) noexcept = default;
  constexpr Size(Size&& other) noexcept : value_(std::exchange(other.value_, 0)) {}
  constexpr Size& operator=(const Size&) noexcept = default;
  constexpr Size& operator=(Size&& other) noexcept {
    value_ = std::exchange(other.value_, 0);
    return *this;
  }
  ~Size() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): as above
  constexpr operator Index() const noexcept { return value_; }

 private:
  Index value_;
};

}  // namespace detail

struct PackOptions {
  /// How elements are stored. bfloat16 and float16: rounded to nearest, ties to even. int8: as q ·
  /// scale, with a scale for each column, max|column| / 127 rounded to 16 bits, and q = element /
  /// scale rounded to an integer, both to nearest, ties to even. q · scale is exact in float.
  /// int8_group32: each 32 rows of a column as Q8_0 of GGUF: scale = max|x| / 127, q = x / scale
  /// rounded to nearest, away from 0 where two are; the scale is then rounded to float16.
  /// int4_group32: as Q4_0: scale = -x / 8 for the x of the largest magnitude, the first one of
  /// several, q = floor(x / scale + 0.5), -8 … 7.
  DType type = DType::float32;
  int num_threads = 0;  ///< maximum number of threads for packing; 0: num_threads() (runtime.hpp)
};

/// A copy of a matrix in the order in which gemm reads it, the same for every instruction set.
///
/// A product by a matrix of another type than float32 has the bits of the product by the float32
/// matrix that unpack() returns: elements are widened exactly, and all arithmetic is that of float.
///
/// It is immutable: any number of threads may use it at the same time. An object that was moved
/// from is empty.
class HEADLANE_API PackedMatrix {
 public:
  /// An empty matrix, 0 × 0.
  PackedMatrix() = default;

  /// Packs b [k, n].
  ///
  /// Shapes: any strides: weights [in, out] as they are, weights [out, in] as `w.transposed()`.
  ///   b is not needed afterwards.
  /// Errors: std::invalid_argument as gemm, for a type that is none, for integers of an element
  ///   that is not finite or, in groups, whose scale exceeds float16, and if the copy would not fit
  ///   into memory (b may be broadcast by strides of 0); std::bad_alloc.
  explicit PackedMatrix(View<const float, 2> b, const PackOptions& options = {});

  [[nodiscard]] Index rows() const { return rows_; }
  [[nodiscard]] Index columns() const { return columns_; }
  [[nodiscard]] DType type() const { return type_; }
  /// Memory in bytes: for each element 4 (float32), 2 (bfloat16, float16), 1 (int8), 34 / 32
  /// (int8_group32) or 18 / 32 (int4_group32), columns rounded up to a multiple of 32, rows to one
  /// of 2 (bfloat16), 4 (int8) or 32 (groups); int8 has 4 more for each of these columns.
  [[nodiscard]] std::size_t bytes() const;
  /// Copies the matrix back to out [rows, columns], any strides, widened to float. Throws
  /// std::invalid_argument for another shape.
  void unpack(View<float, 2> out) const;
  /// For each block of 512 rows all panels of 32 columns, each row by row; for bfloat16 by two rows
  /// whose elements alternate; int8: all panels, each by four rows; groups: by 32 rows and their
  /// scales. Later versions may change the order.
  [[nodiscard]] const void* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(void* p) const;
  };
  detail::Size rows_, columns_;
  DType type_ = DType::float32;
  std::unique_ptr<void, Free> data_;
};

}  // namespace headlane
