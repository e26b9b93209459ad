// The register tile: rows × vectors accumulators that one loop over k feeds. Everything that multiplies goes through here.
#pragma once

#include "kernels/simd/lanes.hpp"

namespace headlane::internal::kernels {
namespace {

/// How many rows and Lanes of accumulators fit: rows · vectors registers, one row of b, one broadcast of a. Two FMA pipes of
/// latency 4 want at least 8 accumulators; more rows mean fewer loads per fma.
/// Default for 16 registers of 8 floats: 6 × 16 floats are 12 registers, 2 for b, 1 for a.
template <class Arch>
struct Tile {
  static constexpr int rows = 6, vectors = 1;
};
#if defined(__AVX512F__)
/// 32 registers of 16: 12 × 32 floats are 24 registers, 2 for b, 1 for a; 14 loads for 24 fmas.
template <>
struct Tile<xsimd::avx512bw> {
  static constexpr int rows = 12, vectors = 2;
};
#endif
/// One float a register: 1 × 16 are 16 accumulators.
template <>
struct Tile<Scalar> {
  static constexpr int rows = 1, vectors = 1;
};
template <>
struct Tile<Portable> {
  static constexpr int rows = 1, vectors = 1;
};

/// A right operand: element [p, j] of panel i stands at data[i · panel_step + p · row_step + j].
struct Panels {
  const float* data;
  Index row_step, panel_step;

  /// Of vector j of a row. A tile begins at the beginning of a panel, unless it is one vector wide.
  [[nodiscard]] HEADLANE_INLINE Index offset(int j) const {
    constexpr int per_panel = panel_columns / lanes;
    return (j / per_panel) * panel_step + (j % per_panel) * lanes;
  }
};

template <class Arch, int Rows, int Vectors>
using Accumulators = Lanes<Arch>[Rows][Vectors];

template <class Arch, int Rows, int Vectors>
HEADLANE_INLINE void clear(Accumulators<Arch, Rows, Vectors>& acc) {
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j) acc[i][j] = Lanes<Arch>::zero();
}

/// Registers of each Lanes that one pass over k accumulates: all, but for plain floats 8 of 16, since a CPU has 16 registers and 8
/// chains fill two FMA units of latency 4. With all 16 two accumulators would spill (32 to 60 % of the scalar FMA peak, now 85 %).
template <class Arch>
inline constexpr int registers_per_pass = Lanes<Arch>::width == 1 ? 8 : Lanes<Arch>::parts;

/// From here on the compiler knows nothing about a pointer. Otherwise GCC keeps a pointer for each row of a tile, twelve for a and twelve
/// for c, most of them on the stack (95 to 72 % of the FMA peak, as soon as the code around the loop changed a little).
template <class T>
HEADLANE_INLINE void hide(T*& p) {
  asm("" : "+r"(p));
}

/// The rows of a left operand, walked along k: element i is that of row i, next() goes on along all rows.
/// Rows at a constant distance: one pointer, the rest is in the instruction.
struct PackedRows {
  const float* data;
  [[nodiscard]] HEADLANE_INLINE float operator[](int i) const { return data[i * row_stride]; }
  HEADLANE_INLINE void next() { ++data; }
};
/// Rows anywhere: a pointer for every three of them, for an address is a pointer plus 0, 1 or 2 times the step; 12 rows, their step, b and
/// its step are 7 of 16 registers. As fast as PackedRows. On the way it fetches the row at `fetch` and the next one into the L2.
template <int Rows>
struct StridedRows {
  static constexpr int group = 3, fetching_rows = 4;  // with fewer rows a is a small part of what is read
  const float* data[(Rows + group - 1) / group];
  Index step;
  const float* fetch;
  HEADLANE_INLINE StridedRows(const float* first, Index step_, const float* fetch_) : step(step_), fetch(fetch_) {
#pragma GCC unroll 8
    for (int i = 0; i < Rows; i += group) data[i / group] = first + i * step;
  }
  [[nodiscard]] HEADLANE_INLINE float operator[](int i) const { return data[i / group][i % group * step]; }
  HEADLANE_INLINE void next() {
#pragma GCC unroll 8
    for (const float*& row : data) hide(++row);
    if constexpr (Rows < fetching_rows) return;
    __builtin_prefetch(fetch, 0, 2);
    __builtin_prefetch(fetch + step, 0, 2);
    hide(++fetch);
  }
};

/// What a tile does with rows of b beside multiplying.
enum class Visit {
  again,  // nothing: they were read before
  first,  // fetches those of the next panel into the L2
  keep,   // and stores them at `keep`, panel_columns apart
};

/// acc[i][j] = fma(a[i, p], b[p, j], acc[i][j]) for p = 0 … k-1. Partial: of the last vector of b only `count` elements are read, the
/// others are 0.
template <class Arch, int Rows, int Vectors, Visit visit = Visit::again, bool Partial = false, class Left>
HEADLANE_INLINE void multiply(Index k, const Left& a, const Panels& b, Accumulators<Arch, Rows, Vectors>& acc,
                              float* keep = nullptr, Index count = lanes) {
  using R = Register<Arch>;
  using Float = typename R::Float;
  constexpr int pass = registers_per_pass<Arch>;
#pragma GCC unroll 2
  for (int first = 0; first < Lanes<Arch>::parts; first += pass) {
    Left left = a;
    const float* right = b.data + first * R::width;
    float* kept = visit == Visit::keep ? keep + first * R::width : nullptr;
    for (Index rest = k; rest > 0; --rest, left.next(), right += b.row_step) {
      Float row[Vectors][pass];
#pragma GCC unroll 8
      for (int j = 0; j < Vectors; ++j)
#pragma GCC unroll 8
        for (int part = 0; part < pass; ++part) {
          const float* at = right + b.offset(j) + part * R::width;
          const bool whole = !Partial || j < Vectors - 1;
          row[j][part] = whole ? R::load(at) : R::load_some(at, count - (first + part) * R::width, 0.0f);
          if constexpr (visit == Visit::keep) R::store(kept + j * lanes + part * R::width, row[j][part]);
        }
      if constexpr (visit == Visit::keep) kept += panel_columns;
      if constexpr (visit != Visit::again) {
        __builtin_prefetch(right + b.panel_step, 0, 2);
        __builtin_prefetch(right + b.panel_step + lanes, 0, 2);
      }
#pragma GCC unroll 16
      for (int i = 0; i < Rows; ++i) {
        const Float factor(left[i]);
#pragma GCC unroll 8
        for (int j = 0; j < Vectors; ++j)
#pragma GCC unroll 8
          for (int part = 0; part < pass; ++part)
            acc[i][j].part[first + part] = R::fma(factor, row[j][part], acc[i][j].part[first + part]);
      }
    }
  }
}

/// Calls f(Constant<Rows>) with the smaller of `rows` and Limit.
template <int Limit, class F>
HEADLANE_INLINE void with_rows(Index rows, const F& f) {
  if constexpr (Limit > 1) {
    if (rows < Limit) return with_rows<Limit - 1>(rows, f);
  }
  f(Constant<Limit>{});
}

/// Calls f(first, count) for parts that cover n, none longer than `most`, as even as they can be: 16 of at most 12 are 8 + 8.
template <class F>
HEADLANE_INLINE void for_each_part(Index n, Index most, const F& f) {
  for (Index parts = (n + most - 1) / most, first = 0; parts > 0; --parts) {
    const Index count = (n - first + parts - 1) / parts;
    f(first, count);
    first += count;
  }
}

/// Calls f(first_row, Constant<rows>) for the tiles that cover `rows`.
template <class Arch, class F>
HEADLANE_INLINE void for_each_row_tile(Index rows, const F& f) {
  for_each_part(rows, Tile<Arch>::rows, [&](Index first, Index count) {
    with_rows<Tile<Arch>::rows>(count, [&](auto constant) { f(first, constant); });
  });
}

/// Vectors that a tile of so many rows is wide: more when rows are few, to have enough accumulators; 1 or whole panels, at most 4.
template <class Arch>
constexpr int vectors_of_tile(int rows) {
  constexpr int per_panel = panel_columns / lanes;
  const int fit = Tile<Arch>::rows / rows * Tile<Arch>::vectors;
  return fit < per_panel ? 1 : fit / per_panel > 4 ? 4 * per_panel : fit / per_panel * per_panel;
}

/// Calls f(first_column, Constant<vectors>) for groups of vectors that cover `columns` of b: as wide as a tile of Rows
/// allows, then as wide as a full tile, then single vectors.
template <class Arch, int Rows, class F>
HEADLANE_INLINE void for_each_column_tile(Index columns, const F& f) {
  constexpr int wide = vectors_of_tile<Arch>(Rows), usual = Tile<Arch>::vectors;
  Index first = 0;
  if constexpr (wide > usual)
    for (; columns - first >= wide * lanes; first += wide * lanes) f(first, Constant<wide>{});
  for (; columns - first > (usual - 1) * lanes; first += usual * lanes) f(first, Constant<usual>{});
  if constexpr (usual > 1)
    for (; first < columns; first += lanes) f(first, Constant<1>{});
}

}  // namespace
}  // namespace headlane::internal::kernels
