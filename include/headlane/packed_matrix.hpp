// A right operand of gemm, packed once for many products: the weights of a linear layer.
#pragma once

#include <headlane/dtype.hpp>
#include <headlane/export.h>
#include <headlane/view.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
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

struct NumbersOptions {
  /// A number that the type does not have becomes the nearest one that it has: -128 becomes -127.
  /// Otherwise it is an error.
  bool clamp = false;
  int num_threads = 0;  ///< maximum number of threads for packing; 0: num_threads() (runtime.hpp)
};

/// A copy of a matrix in the order in which gemm reads it, the same for every instruction set.
///
/// A product by a matrix of another type than float32 has the bits of the product by the float32
/// matrix that unpack() returns: elements are widened to float, and all arithmetic is that of
/// float.
///
/// It is immutable: any number of threads may use it at the same time. An object that was moved
/// from is empty.
/// Memory: bytes(), and for integers 4 more for each column, its sum, which gemm with activations
///   reads. Linux is asked for huge pages (madvise), which matrices of 128 KiB to 4 MiB share; at
///   most 4 MiB stay allocated when there are none.
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

  /// Packs what a file of stored weights holds, without rounding anything: unpack() returns these
  /// elements.
  ///
  /// Shapes, with any strides; [out, in] as `w.transposed()`:
  ///     numbers  [k, n]
  ///     scales   [n], or [ceil(k / 32), n] of groups
  ///   The arguments are not needed afterwards.
  /// Elements:
  ///     bfloat16, float16    the numbers, bit by bit: NaN and inf too
  ///     int8                 numbers · scales of the column, rounded to float: exact if the scale
  ///                          has at most 16 significant bits, as that of the constructor above
  ///     int8_group32,        numbers · scales of the group: rows 32·g … 32·g + 31 of the column
  ///     int4_group32         have scales[g]; exact
  /// Numbers: -127 … 127 for int8 and int8_group32, -8 … 7 for int4_group32.
  /// Scales: finite; they may be negative, 0 or denormal. 127 times a scale of int8 is finite, too.
  /// Errors: std::invalid_argument, with the position, for other numbers (unless clamp is set) or
  ///   scales; for shapes that do not match, a type without groups, null data, sizes that overflow;
  ///   std::bad_alloc.
  [[nodiscard]] static PackedMatrix from_numbers(View<const bfloat16, 2> numbers,
                                                 const NumbersOptions& options = {});
  [[nodiscard]] static PackedMatrix from_numbers(View<const float16, 2> numbers,
                                                 const NumbersOptions& options = {});
  [[nodiscard]] static PackedMatrix from_numbers(View<const std::int8_t, 2> numbers,
                                                 View<const float, 1> scales,
                                                 const NumbersOptions& options = {});
  [[nodiscard]] static PackedMatrix from_numbers(View<const std::int8_t, 2> numbers,
                                                 View<const float16, 2> scales, DType type,
                                                 const NumbersOptions& options = {});

  /// Columns begin … end - 1 of a matrix.
  struct Columns {
    const PackedMatrix* matrix = nullptr;
    Index begin = 0, end = 0;
  };
  /// Copies columns of one or more matrices side by side: those of a part begin at the next
  /// multiple of 32, after columns of no meaning.
  ///
  /// The matrices have the same rows and type; begin is a multiple of 32.
  /// Errors: std::invalid_argument for no parts, null, other rows, types or ranges; std::bad_alloc.
  [[nodiscard]] static PackedMatrix joined(std::span<const Columns> parts);

  /// The number of the order of elements that data() describes. It changes whenever the order does:
  /// a file of packed elements says which one it has.
  static constexpr int layout = 1;
  /// A copy of what data() and bytes() of a matrix had, in this layout and on a machine of the same
  /// byte order.
  ///
  /// bytes has any alignment and is not needed afterwards. NaN of bfloat16, float16 and float32
  /// stay.
  /// Errors: std::invalid_argument for a number of bytes that is not that of such a matrix, for a
  ///   type that is none, negative sizes or sizes that overflow; with the position, for numbers and
  ///   scales that from_numbers() refuses, and for elements other than 0 after the last row;
  ///   std::bad_alloc.
  [[nodiscard]] static PackedMatrix from_bytes(std::span<const std::byte> bytes, Index rows,
                                               Index columns, DType type);

  [[nodiscard]] Index rows() const { return rows_; }
  [[nodiscard]] Index columns() const { return columns_; }
  [[nodiscard]] DType type() const { return type_; }
  /// Bytes of what data() has: for each element 4 (float32), 2 (bfloat16, float16), 1 (int8),
  /// 34 / 32 (int8_group32) or 18 / 32 (int4_group32), columns rounded up to a multiple of 32, rows
  /// to one of 2 (bfloat16), 4 (int8) or 32 (groups); int8 has 4 more for each of these columns.
  [[nodiscard]] std::size_t bytes() const;
  /// Copies the matrix back to out [rows, columns], any strides: widened to float, or rounded once
  /// from that to nearest, ties to even. For a weight [out, in] pass `w.transposed()`. Throws
  /// std::invalid_argument for another shape.
  void unpack(View<float, 2> out, int num_threads = 0) const;
  void unpack(View<bfloat16, 2> out, int num_threads = 0) const;
  void unpack(View<float16, 2> out, int num_threads = 0) const;
  /// Copies some columns to the rows of out [columns.size(), rows], any strides, converted as by
  /// unpack(): the lookup of an embedding whose table is also the weight of the output layer.
  ///
  /// Errors: std::invalid_argument for another shape, if out overlaps columns, and, with the
  ///   position, for a column outside 0 … columns()-1. Then nothing is written.
  void unpack_columns(View<const Index, 1> columns, View<float, 2> out, int num_threads = 0) const;
  void unpack_columns(View<const Index, 1> columns, View<bfloat16, 2> out,
                      int num_threads = 0) const;
  void unpack_columns(View<const Index, 1> columns, View<float16, 2> out,
                      int num_threads = 0) const;
  /// Copies the numbers [rows, columns] and scales of a matrix of integers, any strides: scales
  /// [1, columns] of int8, 0 if there are no rows, [ceil(rows / 32), columns] of groups.
  /// from_numbers() makes the same matrix of them; packing what unpack() returns need not, since it
  /// finds scales of its own.
  /// Throws std::invalid_argument for another shape or type, and if the outputs overlap.
  void unpack(View<std::int8_t, 2> numbers, View<float, 2> scales, int num_threads = 0) const;
  /// For each block of 512 rows all panels of 32 columns, each row by row; for bfloat16 by two rows
  /// whose elements alternate; int8: all panels, each by four rows; groups: by 32 rows and their
  /// scales. Rows after the last one are zeros, columns after the last one have no meaning. Later
  /// versions may change the order, and with it `layout`.
  [[nodiscard]] const void* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(void* p) const;
  };
  /// Has memory for its elements, which are not set.
  HEADLANE_HIDDEN PackedMatrix(Index rows, Index columns, DType type);
  template <class T>
  HEADLANE_HIDDEN void unpack_all(const View<T, 2>& out, int num_threads) const;
  template <class T>
  HEADLANE_HIDDEN void unpack_some(const View<const Index, 1>& columns, const View<T, 2>& out,
                                   int num_threads) const;
  detail::Size rows_, columns_;
  DType type_ = DType::float32;
  std::unique_ptr<void, Free> data_;
};

}  // namespace headlane
