// Transposes of 16 × 16 elements in registers.
#pragma once

#include "kernels/simd/lanes.hpp"

#include <cstdint>
#include <type_traits>

namespace headlane::internal::kernels {
namespace {

/// Calls f(i, first + i · step) for i < Count; an address is a pointer or an integer. One in four
/// is computed, the others are that one plus 1, 2 or 3 times the step: with an address each, most
/// are on the stack.
template <int Count, class Address, class F>
HEADLANE_INLINE void for_each_row_address(Address first, Index step, const F& f) {
  const auto distance = static_cast<std::conditional_t<std::is_pointer_v<Address>, Index, Address>>(step);
  const auto three = 3 * distance;
#pragma GCC unroll 4
  for (int i = 0; i < Count; i += 4, first += 4 * distance) {
    make_opaque(first);
    f(i, first), f(i + 1, first + distance), f(i + 2, first + 2 * distance), f(i + 3, first + three);
  }
}

/// The map of elements that are only moved: NaN too keep their bits.
struct Identity {
  template <class T>
  HEADLANE_INLINE T operator()(const T& x) const {
    return x;
  }
};

/// Columns that are transposed are prefetched this far ahead, into the L2: an L1 can wait for fewer
/// lines at a time than memory delivers. Decoding 32768 keys: 19 GB/s, into the L1 15 (Zen 4).
inline constexpr Index columns_ahead = 64;

/// Prefetches 16 elements, `step` apart, into the L2. They may lie beyond their array: addresses
/// that may wrap, not pointers.
HEADLANE_INLINE void prefetch_beyond(const float* data, Index steps, Index step) {
  const std::uintptr_t bytes = static_cast<std::uintptr_t>(step) * sizeof(float);
  const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(data) + static_cast<std::uintptr_t>(steps) * bytes;
  for_each_row_address<16>(first, static_cast<Index>(bytes), [](int, std::uintptr_t address) HEADLANE_INLINE_LAMBDA {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): not dereferenced
    __builtin_prefetch(reinterpret_cast<const void*>(address), 0, 2);
  });
}

/// square[c] = from[row …, c]: a register of one column of `rows` × `columns` elements, with zeros
/// for rows and columns that there are not. Whole: none is missing.
template <class Arch, bool Whole>
HEADLANE_INLINE void load_transposed(const float* from, Index from_step, Index row, Index rows, Index columns,
                                     typename Register<Arch>::Float (&square)[Register<Arch>::width]) {
  using R = Register<Arch>;
  constexpr int width = R::width;
  if constexpr (Whole && width >= 4) {
    for_each_row_address<width>(from + row * from_step, from_step,
                                [&](int i, const float* at) HEADLANE_INLINE_LAMBDA { square[i] = R::load(at); });
  } else {  // a row that there is not has no address: the step may be any number
#pragma GCC unroll 16
    for (int i = 0; i < width; ++i) {
      square[i] = typename R::Float(0.0f);
      if (row + i < rows) square[i] = R::load_some(from + (row + i) * from_step, columns, 0.0f);
    }
  }
  R::transpose(square);
}

/// to[c, r] = map(from[r, c]) for r < rows, c < columns (both <= 16), both with inner stride 1. The
/// rest of the 16 × 16 of `to` is map(0) for r >= rows and untouched for c >= columns. Whole: both
/// are 16. `map` takes and returns a register.
template <class Arch, bool Whole, class Map = Identity>
HEADLANE_INLINE void transpose_part(const float* from, Index from_step, Index rows, Index columns, float* to,
                                    Index to_step, const Map& map = {}) {
  using R = Register<Arch>;
  constexpr int width = R::width;
  for (Index column = 0; column < (Whole ? lanes : columns); column += width) {
    for (Index row = 0; row < lanes; row += width) {
      typename R::Float square[width];
      // gemm_columns() does not do so: 4 loads of a line need it in the L1 for longer, and rows of
      // 2048 floats, whose lines share a set of the L1, or from memory take 1.1 of the time.
      if constexpr (Whole && width == lanes) R::load_transposed(from, from_step, square);
      else load_transposed<Arch, Whole>(from + column, from_step, row, rows, columns - column, square);
#pragma GCC unroll 16
      for (int i = 0; i < width; ++i)
        if (Whole || column + i < columns) R::store(to + (column + i) * to_step + row, map(square[i]));
    }
  }
}

template <class Arch, class Map = Identity>
HEADLANE_INLINE void transpose_16(const float* from, Index from_step, Index rows, Index columns, float* to,
                                  Index to_step, const Map& map = {}) {
  if (rows >= lanes && columns >= lanes) transpose_part<Arch, true>(from, from_step, rows, columns, to, to_step, map);
  else transpose_part<Arch, false>(from, from_step, rows, columns, to, to_step, map);
}

}  // namespace
}  // namespace headlane::internal::kernels
