// Keys and values that a cache stores in another type than float: products of few rows widen them
// in registers; for more rows, they are widened into panels of float first.
#pragma once

#include "kernels/args/attention.hpp"
#include "kernels/gemm/tile.hpp"

namespace headlane::internal::kernels {
namespace {

/// What the scales of int8 belong to.
enum class Scaled { columns, rows };

/// The stored type T as float, exactly: of int8, the product with its scale fits into a float.
template <class Arch, class T, Scaled scaled>
HEADLANE_INLINE typename Register<Arch>::Float widened(const T* data, const float* scales) {
  using R = Register<Arch>;
  if constexpr (!std::is_integral_v<T>) return R::load(data);
  else if constexpr (scaled == Scaled::columns) return R::load(data) * R::load(scales);
  else return R::load(data) * typename R::Float(*scales);
}

/// Whether rows of so many vectors are widened two registers at a time, whose columns stay divided
/// as load_unpacked() does until put_in_order().
template <class Arch, class T, int Vectors>
inline constexpr bool unpacks = false;
template <class Arch, int Vectors>
  requires requires(typename Register<Arch>::Float x) { Register<Arch>::put_in_order(x, x); }
inline constexpr bool unpacks<Arch, bfloat16, Vectors> = Vectors * Lanes<Arch>::parts % 2 == 0;

/// Register r of a row of accumulators.
template <class Arch, int Vectors>
HEADLANE_INLINE auto& register_of(Lanes<Arch> (&row)[Vectors], int r) {
  return row[r / Lanes<Arch>::parts].part[r % Lanes<Arch>::parts];
}

/// Stores a tile of multiply_stored(), rows `row_step` apart.
template <class Arch, class T, int Rows, int Vectors>
HEADLANE_INLINE void store_tile(Accumulators<Arch, Rows, Vectors>& acc, float* to, Index row_step) {
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
    if constexpr (unpacks<Arch, T, Vectors>) {
#pragma GCC unroll 8
      for (int r = 0; r < Vectors * Lanes<Arch>::parts; r += 2)
        Register<Arch>::put_in_order(register_of<Arch>(acc[i], r), register_of<Arch>(acc[i], r + 1));
    }
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j) acc[i][j].store(to + i * row_step + j * lanes);
  }
}

/// As multiply() in gemm/tile.hpp, by rows of a stored type, `step` apart. scales: of the columns
/// of the tile, or of the k rows. With each row, what is at the same place from `ahead` on is
/// prefetched into the L2: the hardware's prefetchers find too little in pages of a few KiB (1 ×
/// 32768 keys from memory, Zen 5: int8 at 40 instead of 15 GB/s). Bytes that have not come by then
/// are asked for again 16 rows before they are read, with AVX2: int8 in 0.93 of the time (Zen 3).
template <class Arch, class T, Scaled scaled, int Rows, int Vectors>
HEADLANE_INLINE void multiply_stored(Index k, PackedRows left, const T* data, Index step, const float* scales,
                                     const T* ahead, Accumulators<Arch, Rows, Vectors>& acc) {
  using R = Register<Arch>;
  using Float = typename R::Float;
  constexpr int pass = registers_per_pass<Arch>, line = 64 / sizeof(T);
  constexpr bool of_columns = std::is_integral_v<T> && scaled == Scaled::columns;
  constexpr bool of_rows = std::is_integral_v<T> && scaled == Scaled::rows;
#pragma GCC unroll 2
  for (int first = 0; first < Lanes<Arch>::parts; first += pass) {
    PackedRows a = left;
    const T *right = data + first * R::width, *next = ahead;
    const float* scale = scales;
    for (Index rest = k; rest > 0; --rest, a.next(1), right += step, next += step) {
#pragma GCC unroll 8
      for (int i = 0; i < Vectors * static_cast<int>(lanes); i += line) __builtin_prefetch(next + i, 0, 2);
      if constexpr (std::is_integral_v<T> && R::width == 8) __builtin_prefetch(right + 16 * step, 0, 3);
      constexpr int at_once = Vectors * pass % 2 == 0 ? 2 : 1;  // registers; then rows, or their broadcasts spill
#pragma GCC unroll 8
      for (int r = 0; r < Vectors * pass; r += at_once) {
        Float row[at_once];
        if constexpr (unpacks<Arch, T, Vectors>) {
          R::load_unpacked(right + r * R::width, row[0], row[1]);
        } else {
#pragma GCC unroll 2
          for (int i = 0; i < at_once; ++i) {
            const int column = (r + i) / pass * static_cast<int>(lanes) + (r + i) % pass * R::width;
            const float* of_column = of_columns ? scale + column + first * R::width : scale;
            row[i] = widened<Arch, T, scaled>(right + column, of_column);
          }
        }
#pragma GCC unroll 16
        for (int i = 0; i < Rows; ++i) {
          const Float x(a.at(i, 0));
#pragma GCC unroll 2
          for (int n = 0; n < at_once; ++n) {
            Float& sum = acc[i][(r + n) / pass].part[first + (r + n) % pass];
            sum = R::fma(x, row[n], sum);
          }
        }
      }
      if constexpr (of_rows) ++scale;
    }
  }
}

/// A type as a value.
template <class T>
struct TypeOf {
  using Type = T;
};

/// Calls f(TypeOf<T>) with the stored type; not for float32.
template <class F>
HEADLANE_INLINE void with_stored(DType type, const F& f) {
  if (type == DType::bfloat16) return f(TypeOf<bfloat16>{});
  if (type == DType::float16) return f(TypeOf<float16>{});
  f(TypeOf<std::int8_t>{});
}

/// The scales from an element on, in one page; null if the type has none.
HEADLANE_INLINE const float* scales_from(const float* const* pages, Index page, Index at) {
  return pages[page] == nullptr ? nullptr : pages[page] + at;
}

/// Prefetches the scales of some keys into the L2.
HEADLANE_INLINE void prefetch_scales(const float* scales, Index count) {
  for (Index i = 0; i < count; i += lanes) __builtin_prefetch(scales + i, 0, 2);
}

/// The widest tile of keys for so many rows, in vectors: a power of two, which divides a panel.
template <class Arch>
constexpr int widest_stored_tile(int rows) {
  const int fit = Tile<Arch>::rows * Tile<Arch>::vectors / rows;
  return fit >= 8 ? 8 : fit >= 4 ? 4 : fit >= 2 ? 2 : 1;
}

/// Calls f(Constant<vectors>) for the widest tile that may begin at key `at`: it does not leave a
/// panel, and has a key before `end` in each vector. Returns its end.
template <int Wide, class F>
HEADLANE_INLINE Index stored_tile(Index at, Index end, Index width, const F& f) {
  constexpr Index keys = Wide * lanes;
  if constexpr (Wide > 1) {
    if (keys > width || at % keys != 0 || end - at <= keys - lanes) return stored_tile<Wide / 2>(at, end, width, f);
  }
  f(Constant<Wide>{});
  return at + keys;
}

/// Scores of a tile of rows, as they come from q·kᵀ, for the keys begin … end-1. `begin` is a
/// multiple of panel_columns.
template <class Arch, class T, int Rows>
HEADLANE_INLINE void stored_scores(const AttentionBlock& block, Index row, Index begin, Index end) {
  const KeyBlock& keys = block.keys;
  const Index width = keys.k_columns;
  for (Index at = begin; at < end;) {
    const Index page = at / keys.page, within = at % keys.page, page_end = (page + 1) * keys.page;
    at = stored_tile<widest_stored_tile<Arch>(Rows)>(at, page_end < end ? page_end : end, width, [&](auto vectors) {
      constexpr int count = vectors.value;
      Lanes<Arch> acc[Rows][count];
      clear<Arch, Rows, count>(acc);
      const Index offset = within / width * width * block.head_dim + within % width;
      if constexpr (std::is_integral_v<T>) prefetch_scales(keys.v_scales[page] + within, count * lanes);
      multiply_stored<Arch, T, Scaled::columns, Rows, count>(
          block.head_dim, PackedRows{block.q + row * packed_row_stride}, static_cast<const T*>(keys.k[page]) + offset,
          width, scales_from(keys.k_scales, page, within), static_cast<const T*>(keys.v[page]) + offset, acc);
      store_tile<Arch, T, Rows, count>(acc, block.scores + at, packed_row_stride);
    });
  }
}

template <class Arch, int Rows>
__attribute__((noinline)) void stored_scores(const AttentionBlock& block, Index row, Index begin, Index end) {
  with_stored(block.keys.type, [&](auto type) HEADLANE_INLINE_LAMBDA {
    stored_scores<Arch, typename decltype(type)::Type, Rows>(block, row, begin, end);
  });
}

/// P · V of a tile for the keys begin … end-1, to sums[Rows][Vectors · 16].
template <class Arch, int Rows, int Vectors>
__attribute__((noinline)) void stored_values(const AttentionBlock& block, Index column, Index begin, Index end,
                                             float* sums) {
  const KeyBlock& keys = block.keys;
  with_stored(keys.type, [&](auto type) HEADLANE_INLINE_LAMBDA {
    using T = typename decltype(type)::Type;
    Lanes<Arch> acc[Rows][Vectors];
    clear<Arch, Rows, Vectors>(acc);
    for (Index first = begin, page = begin / keys.page; first < end; ++page) {
      const Index page_end = (page + 1) * keys.page, piece_end = page_end < end ? page_end : end;
      const Index within = first - page * keys.page, at = within * keys.v_row_step + column;
      if constexpr (std::is_integral_v<T>) prefetch_scales(keys.next_scales[page] + within, piece_end - first);
      multiply_stored<Arch, T, Scaled::rows, Rows, Vectors>(
          piece_end - first, PackedRows{block.scores + first}, static_cast<const T*>(keys.v[page]) + at,
          keys.v_row_step, scales_from(keys.v_scales, page, within), static_cast<const T*>(keys.next[page]) + at, acc);
      first = piece_end;
    }
    store_tile<Arch, T, Rows, Vectors>(acc, sums, Vectors * lanes);
  });
}

/// 16 values of a key, `offset` elements after the first ones.
template <class Arch>
HEADLANE_INLINE Lanes<Arch> load_values(const KeyBlock& keys, Index key, Index offset) {
  using V = Lanes<Arch>;
  const Index page = key / keys.page, within = key % keys.page, at = within * keys.v_row_step + offset;
  if (keys.type == DType::float32) return V::load(static_cast<const float*>(keys.v[page]) + at);
  V result;
  with_stored(keys.type, [&](auto type) HEADLANE_INLINE_LAMBDA {
    using T = typename decltype(type)::Type;
    for_each_register<V::parts>([&](int i) HEADLANE_INLINE_LAMBDA {
      result.part[i] = widened<Arch, T, Scaled::rows>(static_cast<const T*>(keys.v[page]) + at + i * V::width,
                                                      scales_from(keys.v_scales, page, within));
    });
  });
  return result;
}

template <class Arch>
void widen_rows(const StoredRows& rows) noexcept {
  using V = Lanes<Arch>;
  with_stored(rows.type, [&](auto type) HEADLANE_INLINE_LAMBDA {
    using T = typename decltype(type)::Type;
    const T* from = static_cast<const T*>(rows.data);
    float* to = rows.to;
    for (Index row = 0; row < rows.rows; ++row, from += rows.row_step, to += panel_columns) {
      const float* of_row = rows.row_scales == nullptr ? nullptr : rows.row_scales + row;
      for_each_register<panel_columns / V::width>([&](int i) HEADLANE_INLINE_LAMBDA {
        const Index at = i * V::width;
        const auto x = rows.column_scales != nullptr
                           ? widened<Arch, T, Scaled::columns>(from + at, rows.column_scales + at)
                           : widened<Arch, T, Scaled::rows>(from + at, of_row);
        Register<Arch>::store(to + at, x);
      });
    }
  });
}

}  // namespace
}  // namespace headlane::internal::kernels
