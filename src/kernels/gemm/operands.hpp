// The operands of a register tile: rows of the left one, along k, and panels of the right one.
#pragma once

#include "kernels/gemm/tile_size.hpp"

namespace headlane::internal::kernels {
namespace {

/// Rows of the right operand in a word of this type.
template <class T>
inline constexpr Index rows_of = 1;
template <>
inline constexpr Index rows_of<BfloatPair> = 2;
template <>
inline constexpr Index rows_of<Int8Quad> = 4;
template <>
inline constexpr Index rows_of<Int4Oct> = 8;
template <class Word, int Depth>
inline constexpr Index rows_of<PanelGroup<Word, Depth>> = 32;

/// The number of a row of a word, which the compiler knows or not.
constexpr int number_of(int row) { return row; }
template <int row>
constexpr int number_of(Constant<row>) {
  return row;
}

/// A group that few rows multiply by: without tiny elements, and any rows (group_scale.hpp).
template <class Group>
struct ByFma : Group {};
template <class Group>
struct BySubtraction : Group {};
template <class Group>
inline constexpr Index rows_of<ByFma<Group>> = 32;
template <class Group>
inline constexpr Index rows_of<BySubtraction<Group>> = 32;
template <class T>
inline constexpr bool is_for_few = false;
template <class Group>
inline constexpr bool is_for_few<ByFma<Group>> = true;
template <class Group>
inline constexpr bool is_for_few<BySubtraction<Group>> = true;

/// Columns of the left operand in a word of 32 bits.
template <class T>
inline constexpr Index columns_of_word = 1;

/// The longest chain of a product by this type, in columns of the left operand.
template <class T>
inline constexpr Index chain_of = chain_length;

/// A right operand: word [w, j] of panel i is data[i · panel_step + w · row_step + j]. T: a word,
/// float or what is widened as it is loaded.
template <class T>
struct PanelsOf {
  const T* data;
  Index row_step, panel_step;
  const float* scales = nullptr;  ///< of the tile's columns, if T is Int8Quad
  Index within = 0;               ///< column of the first panel where the tile begins, if T is a PanelGroup
  const T* next = nullptr;        ///< floats to prefetch, beside the rows of these panels

  /// Offset of vector j of a row. A tile begins at a panel boundary, unless it is one vector wide.
  [[nodiscard]] HEADLANE_INLINE Index offset(int j) const {
    constexpr int per_panel = panel_columns / lanes;
    return (j / per_panel) * panel_step + (j % per_panel) * lanes;
  }
};
using Panels = PanelsOf<float>;

/// The rows of a left operand, walked along k: at(i, p) reads element p of row i, next(n) goes n
/// elements on in all rows.
/// Packed rows are a constant distance apart: one pointer, and the offset of a row is an immediate.
struct PackedRows {
  /// Rows of b. PanelTile by two: attention in 0.95 to 1.0 of the time (Zen 3).
  template <class Arch, int Rows>
  static constexpr int at_once = Register<Arch>::width == 8 && Rows == PanelTile<Arch>::rows ? 2 : 1;
  const float* data;
  [[nodiscard]] HEADLANE_INLINE float at(int i, int p) const { return data[i * packed_row_stride + p]; }
  HEADLANE_INLINE void next(int count) { data += count; }
  template <class Float>
  HEADLANE_INLINE void follow(const Float&) {}
};
/// Rows in place: a pointer for every three of them, since an address is a pointer plus 0, 1 or 2
/// times the step. 12 rows, their step, b and its step take 7 of 16 registers. As fast as
/// PackedRows. Along the way they prefetch the rows at `ahead` and ahead_step after it into the L2;
/// not along the way, if the loop is unrolled: prefetch(k) does it before.
template <class Arch, int Rows>
struct StridedRows {
  static constexpr int group = 3;
  static constexpr bool prefetches = Rows >= 4;  // with fewer rows a is a small part of all reads
  static constexpr bool before = Rows >= Tile<Arch>::unrolled_from;
  template <class, int>
  static constexpr int at_once = before ? 2 : 1;
  const float* data[(Rows + group - 1) / group];
  Index step;
  const float* ahead;
  Index ahead_step;
  HEADLANE_INLINE StridedRows(const float* first, Index step_, const float* ahead_, Index ahead_step_)
      : step(step_), ahead(ahead_), ahead_step(ahead_step_) {
#pragma GCC unroll 8
    for (int i = 0; i < Rows; i += group) data[i / group] = first + i * step;
  }
  [[nodiscard]] HEADLANE_INLINE float at(int i, int p) const { return data[i / group][i % group * step + p]; }
  HEADLANE_INLINE void next(int count) {
#pragma GCC unroll 8
    for (const float*& row : data) make_opaque(row += count);
    if constexpr (!prefetches || before) return;
    __builtin_prefetch(ahead, 0, 2);
    __builtin_prefetch(ahead + ahead_step, 0, 2);
    make_opaque(ahead += count);
  }
  /// Keeps the loads after it behind the computation of `sum`. Clang hoists the loads for the next
  /// row of b above the fmas of this one and then spills, which takes 1.6 times the time. GCC does
  /// not, and with this dependency would take 1.02 of the time.
  template <class Float>
  HEADLANE_INLINE void follow([[maybe_unused]] const Float& sum) {
#if defined(__clang__) && defined(__AVX2__) && !defined(__AVX512F__)
    asm volatile("" : "+r"(data[0]) : "x"(sum.data));
#endif
  }
  HEADLANE_INLINE void prefetch(Index k) const {
    if constexpr (!prefetches || !before) return;
    constexpr Index line = 16;  // floats
    for (Index p = 0; p < k; p += line) {
      __builtin_prefetch(ahead + p, 0, 2);
      __builtin_prefetch(ahead + ahead_step + p, 0, 2);
    }
  }
};

}  // namespace
}  // namespace headlane::internal::kernels
