// PackedMatrix: from the numbers and scales of a file, and back.
#include "core/call_scope.hpp"
#include "core/parallel.hpp"
#include "gemm/check.hpp"
#include "gemm/packed_units.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace headlane {

using namespace internal;

namespace {

using kernels::panel_columns;

constexpr Caller from_numbers_of("PackedMatrix::from_numbers");

/// Copies a part as the rows of a unit, with zeros for what it lacks; f converts an element.
template <class T, class F>
void store_rows(const View<const T, 2>& b, const Part& part, Index unit_rows, T* to, const F& f) {
  for (Index j = 0; j < panel_columns; ++j)
    for (Index i = 0; i < unit_rows; ++i)
      to[j * unit_rows + i] = i < part.rows && j < part.columns ? f(b(part.row + i, part.column + j)) : T();
}

/// Numbers on their way into a matrix.
struct Numbers {
  View<const std::int8_t, 2> view;
  DType type;
  bool clamp;
  std::atomic<bool> fit = true;

  [[nodiscard]] int least() const { return type == DType::int4_group32 ? -8 : -127; }
  [[nodiscard]] int greatest() const { return type == DType::int4_group32 ? 7 : 127; }

  void store(const Part& part, Index unit_rows, std::int8_t* to) {
    const int low = least(), high = greatest();
    bool all_fit = true;
    store_rows(view, part, unit_rows, to, [&](std::int8_t q) {
      all_fit = all_fit && q >= low && q <= high;
      return static_cast<std::int8_t>(std::clamp<int>(q, low, high));
    });
    if (!all_fit && !clamp) fit = false;
  }

  /// Throws std::invalid_argument, which names the first one, if one did not fit.
  void check_fit(const Operand& numbers) const {
    if (fit) return;
    for (Index i = 0; i < view.shape[0]; ++i)
      for (Index j = 0; j < view.shape[1]; ++j) {
        const std::int8_t q = view(i, j);
        numbers.require(q >= least() && q <= greatest(), "[", i, ", ", j, "] is ", q, "; ", name_of(type), " has ",
                        least(), " … ", greatest(), ", clamp is not set");
      }
  }
};

void store_numbers(Numbers& numbers, const Part& part, kernels::Int8Group& to) {
  for (Index w = 0; w < group_rows / 4; ++w) numbers.store(part.from_row(4 * w), 4, to.numbers[w]->row);
}

void store_numbers(Numbers& numbers, const Part& part, kernels::Int4Group& to) {
  for (Index w = 0; w < group_rows / 8; ++w) {
    std::int8_t rows[8 * panel_columns];
    numbers.store(part.from_row(8 * w), 8, rows);
    for (Index j = 0; j < panel_columns; ++j) {
      std::uint32_t bits = 0;
      for (Index i = 0; i < 8; ++i) bits |= (static_cast<std::uint32_t>(rows[8 * j + i]) & 15u) << (4 * i);
      to.numbers[w][j].bits = bits;
    }
  }
}

/// Copies elements of 16 bits.
template <class T>
void store_elements(const PackedMatrix& matrix, const View<const T, 2>& b, const NumbersOptions& options) {
  const Index unit_rows = kernels::unit_of(matrix.type()).rows;
  for_each_unit(packed_columns(matrix), matrix.columns(), threads_for(matrix, options.num_threads),
                [&](std::byte* unit, const Part& part) {
                  store_rows(b, part, unit_rows, reinterpret_cast<T*>(unit), [](T x) { return x; });
                });
}

template <class Group>
void store_groups(const PackedMatrix& matrix, Numbers& numbers, const View<const float16, 2>& scales,
                  const NumbersOptions& options) {
  for_each_unit(packed_columns(matrix), matrix.columns(), threads_for(matrix, options.num_threads),
                [&](std::byte* unit, const Part& part) {
                  auto& group = *reinterpret_cast<Group*>(unit);
                  store_numbers(numbers, part, group);
                  store_rows(scales, {part.row / group_rows, 1, part.column, part.columns}, 1, group.scales,
                             [](float16 x) { return x; });
                });
}

Operand checked(const Operand& b, const NumbersOptions& options) {
  check_packable(b);
  check_threads(from_numbers_of, options.num_threads);
  return b;
}

void check_scales(const Operand& of_scales, const View<const float, 1>& scales) {
  for (Index j = 0; j < scales.shape[0]; ++j)
    of_scales.require(std::isfinite(127.0f * scales(j)), "[", j, "] is ", text_of(scales(j)),
                      "; 127 times a scale must be finite");
}

void check_scales(const Operand& of_scales, const View<const float16, 2>& scales) {
  for (Index g = 0; g < scales.shape[0]; ++g)
    for (Index j = 0; j < scales.shape[1]; ++j) {
      const auto scale = static_cast<float>(scales(g, j));
      of_scales.require(std::isfinite(scale), "[", g, ", ", j, "] is ", text_of(scale), "; a scale must be finite");
    }
}

}  // namespace

PackedMatrix PackedMatrix::from_numbers(View<const bfloat16, 2> numbers, const NumbersOptions& options) {
  const CallScope scope;
  checked(from_numbers_of.operand("numbers", numbers), options);
  PackedMatrix result(numbers.shape[0], numbers.shape[1], DType::bfloat16);
  if (result.data_) store_elements(result, numbers, options);
  return result;
}

PackedMatrix PackedMatrix::from_numbers(View<const float16, 2> numbers, const NumbersOptions& options) {
  const CallScope scope;
  checked(from_numbers_of.operand("numbers", numbers), options);
  PackedMatrix result(numbers.shape[0], numbers.shape[1], DType::float16);
  if (result.data_) store_elements(result, numbers, options);
  return result;
}

PackedMatrix PackedMatrix::from_numbers(View<const std::int8_t, 2> numbers, View<const float, 1> scales,
                                        const NumbersOptions& options) {
  const CallScope scope;
  const Operand of_numbers = checked(from_numbers_of.operand("numbers", numbers), options),
                of_scales = from_numbers_of.operand("scales", scales);
  check_operand(of_scales);
  check_same(of_numbers, 1, "columns", of_scales, 0, "elements");
  PackedMatrix result(numbers.shape[0], numbers.shape[1], DType::int8);
  if (!result.data_) return result;
  check_scales(of_scales, scales);
  const PackedColumns to = packed_columns(result);
  auto* const stored = const_cast<float*>(to.scales);  // of the result, which is not const
  for (Index j = 0; j < to.width; ++j) stored[j] = j < result.columns_ ? scales(j) : 0.0f;
  Numbers all{numbers, DType::int8, options.clamp};
  for_each_unit(to, result.columns_, threads_for(result, options.num_threads), [&](std::byte* unit, const Part& part) {
    all.store(part, 4, reinterpret_cast<kernels::Int8Quad*>(unit)->row);
  });
  all.check_fit(of_numbers);
  set_sums(result, options.num_threads);
  return result;
}

PackedMatrix PackedMatrix::from_numbers(View<const std::int8_t, 2> numbers, View<const float16, 2> scales, DType type,
                                        const NumbersOptions& options) {
  const CallScope scope;
  const Operand of_numbers = checked(from_numbers_of.operand("numbers", numbers), options),
                of_scales = from_numbers_of.operand("scales", scales);
  check_operand(of_scales);
  check_type(from_numbers_of, type);
  from_numbers_of.require(has_groups(type), "type is ", name_of(type), ", it may be int8_group32 or int4_group32");
  check_same(of_numbers, 1, "columns", of_scales, 1, "columns");
  const Index groups = ceil_div(numbers.shape[0], group_rows);
  of_scales.require(scales.shape[0] == groups, " has ", scales.shape[0], " rows, numbers of shape ", of_numbers,
                    " has ", groups, " groups of 32 rows");
  PackedMatrix result(numbers.shape[0], numbers.shape[1], type);
  if (!result.data_) return result;
  check_scales(of_scales, scales);
  Numbers all{numbers, type, options.clamp};
  if (type == DType::int8_group32) store_groups<kernels::Int8Group>(result, all, scales, options);
  else store_groups<kernels::Int4Group>(result, all, scales, options);
  all.check_fit(of_numbers);
  set_sums(result, options.num_threads);
  return result;
}

void PackedMatrix::unpack(View<std::int8_t, 2> numbers, View<float, 2> scales, int num_threads) const {
  constexpr Caller caller("PackedMatrix::unpack");
  const Operand of_numbers = caller.operand("numbers", numbers), of_scales = caller.operand("scales", scales);
  check_output(of_numbers);
  check_output(of_scales);
  caller.require(has_groups(type_) || type_ == DType::int8, "the matrix is of ", name_of(type_),
                 ", it has no numbers and scales");
  of_numbers.require(numbers.shape[0] == rows_ && numbers.shape[1] == columns_, " is ", of_numbers, ", the matrix is ",
                     rows_, " x ", columns_);
  const Index rows = has_groups(type_) ? ceil_div(rows_, group_rows) : 1;
  of_scales.require(scales.shape[0] == rows && scales.shape[1] == columns_, " is ", of_scales,
                    ", the scales of the matrix are ", rows, " x ", columns_);
  check_no_overlap(of_numbers, of_scales);
  check_threads(caller, num_threads);
  const CallScope scope;  // its rounding
  const PackedColumns from = data_ != nullptr ? packed_columns(*this) : PackedColumns();
  for (Index j = 0; j < columns_ && !has_groups(type_); ++j)
    scales(0, j) = from.scales != nullptr ? from.scales[j] : 0.0f;
  for_each_unit(from, columns_, threads_for(*this, num_threads), [&](const std::byte* unit, const Part& part) {
    for (Index j = 0; j < part.columns; ++j) {
      const Index column = part.column + j;
      for (Index i = 0; i < part.rows; ++i) numbers(part.row + i, column) = number(unit, type_, i, j);
      if (has_groups(type_)) scales(part.row / group_rows, column) = scale_of_group(unit, type_, j);
    }
  });
}

}  // namespace headlane
