// The register tile: rows × vectors accumulators, and the loop over k that updates them. Every
// product of the library uses it.
#pragma once

#include "kernels/simd/lanes.hpp"

#include <type_traits>

namespace headlane::internal::kernels {
namespace {

/// The accumulators that fit: rows · vectors Lanes beside one row of b and one broadcast element of
/// a. Two FMA pipes of latency 4 need at least 8 accumulators; more rows mean fewer loads per fma.
/// Default for 16 registers of 8 floats: 6 × 16 floats are 12 registers, 2 for b, 1 for a.
/// unrolled: the loop over k multiplies by two rows of b at a time and leaves prefetching to the
/// beginning of each chain. 12 fmas, 6 cycles, came with 15 other instructions, now 10: Zen 3 went
/// from 89 to 91 % of the FMA peak, and from about 64 to 74 % while the other hyperthread of the
/// core took half of what it decodes. By four rows at a time it is slower, 88 %. The wider tile has
/// 24 fmas, of 12 to 24 cycles.
template <class Arch>
struct Tile {
  static constexpr int rows = 6, vectors = 1;
  static constexpr bool unrolled = Register<Arch>::width == 8;
};
#if defined(__AVX512F__)
/// 32 registers of 16: 12 × 32 floats are 24 registers, 2 for b, 1 for a; 14 loads for 24 fmas.
template <>
struct Tile<xsimd::avx512bw> {
  static constexpr int rows = 12, vectors = 2;
  static constexpr bool unrolled = false;
};
#endif
/// One float a register: 1 × 16 is 16 accumulators.
template <>
struct Tile<Scalar> {
  static constexpr int rows = 1, vectors = 1;
  static constexpr bool unrolled = false;
};
template <>
struct Tile<Portable> {
  static constexpr int rows = 1, vectors = 1;
  static constexpr bool unrolled = false;
};

/// The Arch of a tile of at most 8 columns, one whose Lanes can be halved, and of its epilogue.
template <class Arch>
struct Narrow {
  using Tile = Arch;
  using Epilogue = Arch;
};
#if defined(__AVX512F__)
template <>
struct Narrow<xsimd::avx512bw> {
  using Tile = HalfOfAvx512;
  using Epilogue = xsimd::avx512bw;
};
template <>
struct Narrow<HalfOfAvx512> {
  using Epilogue = xsimd::avx512bw;
};
#endif

/// Rows of the right operand in a word of this type.
template <class T>
inline constexpr Index rows_of = 1;
template <>
inline constexpr Index rows_of<BfloatPair> = 2;
template <>
inline constexpr Index rows_of<Int8Quad> = 4;
template <class Word, int Depth>
inline constexpr Index rows_of<PanelGroup<Word, Depth>> = 32;

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

template <class Arch, int Rows, int Vectors>
using Accumulators = Lanes<Arch>[Rows][Vectors];

template <class Arch, int Rows, int Vectors>
HEADLANE_INLINE void clear(Accumulators<Arch, Rows, Vectors>& acc) {
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j) acc[i][j] = Lanes<Arch>::zero();
}

/// Registers of each Lanes that one pass over k accumulates: all of them, but of plain floats 8 of
/// 16, since a CPU has 16 registers and 8 chains fill two FMA units of latency 4. With all 16, two
/// accumulators spill: 32 to 60 % of the scalar FMA peak instead of 85 %.
template <class Arch>
inline constexpr int registers_per_pass = Lanes<Arch>::width == 1 ? 8 : Lanes<Arch>::parts;

/// The rows of a left operand, walked along k: at(i, p) reads element p of row i, next(n) goes n
/// elements on in all rows.
/// Packed rows are a constant distance apart: one pointer, and the offset of a row is an immediate.
struct PackedRows {
  static constexpr int at_once = 1;  // rows of b; by two, attention takes as long or up to 3 % longer (Zen 3)
  const float* data;
  [[nodiscard]] HEADLANE_INLINE float at(int i, int p) const { return data[i * packed_row_stride + p]; }
  HEADLANE_INLINE void next(int count) { data += count; }
};
/// Rows in place: a pointer for every three of them, since an address is a pointer plus 0, 1 or 2
/// times the step. 12 rows, their step, b and its step take 7 of 16 registers. As fast as
/// PackedRows. Along the way they prefetch the rows at `ahead` and ahead_step after it into the L2;
/// not along the way, if the loop is unrolled: prefetch(k) does it before.
template <class Arch, int Rows>
struct StridedRows {
  static constexpr int group = 3;
  static constexpr bool prefetches = Rows >= 4;  // with fewer rows a is a small part of all reads
  static constexpr bool before = Tile<Arch>::unrolled;
  static constexpr int at_once = Tile<Arch>::unrolled ? 2 : 1;
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
  HEADLANE_INLINE void prefetch(Index k) const {
    if constexpr (!prefetches || !before) return;
    constexpr Index line = 16;  // floats
    for (Index p = 0; p < k; p += line) {
      __builtin_prefetch(ahead + p, 0, 2);
      __builtin_prefetch(ahead + ahead_step + p, 0, 2);
    }
  }
};

/// Additional work of a tile on the rows of b that it multiplies by.
enum class Visit {
  again,  // nothing: they were read before
  part,   // prefetches the next part of a panel into the L2 (PartOfPanel)
  first,  // prefetches the rows of the next panel into the L2
  keep,   // does so, and stores its own rows at `keep`, panel_columns apart
};

/// acc[i][j] = fma(left.at(i, p), row[j], acc[i][j]) for one row of b, of which load(j, part)
/// returns register `part` of a pass.
template <class Arch, int Rows, int Vectors, Visit visit, int pass = registers_per_pass<Arch>, class Left, class Load>
HEADLANE_INLINE void multiply_row(const Left& left, int p, int first, Accumulators<Arch, Rows, Vectors>& acc,
                                  float*& kept, const Load& load) {
  using R = Register<Arch>;
  typename R::Float row[Vectors][pass];
#pragma GCC unroll 8
  for (int j = 0; j < Vectors; ++j)
#pragma GCC unroll 8
    for (int part = 0; part < pass; ++part) {
      row[j][part] = load(j, part);
      if constexpr (visit == Visit::keep) R::store(kept + j * lanes + part * R::width, row[j][part]);
    }
  if constexpr (visit == Visit::keep) kept += panel_columns;
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
    const typename R::Float factor(left.at(i, p));
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j)
#pragma GCC unroll 8
      for (int part = 0; part < pass; ++part)
        acc[i][j].part[first + part] = R::fma(factor, row[j][part], acc[i][j].part[first + part]);
  }
}

/// Two strips that read the same panel in tiles of so many vectors prefetch another one, each tile
/// a part, from its first float to its last: these for each row that it multiplies by.
template <int Vectors>
struct PartOfPanel {
  static constexpr int count = 2 * panel_columns / (Vectors * lanes), floats = panel_columns / count;
};

/// Prefetches what is beside one row of b, and goes on to the next one.
template <Visit visit, int Vectors>
HEADLANE_INLINE void prefetch_next(const float*& next, const Panels& b) {
  if constexpr (visit == Visit::again) return;
  constexpr int per_panel = panel_columns / lanes;
  constexpr int count = visit == Visit::part ? 1 : Vectors < per_panel ? per_panel : Vectors;
#pragma GCC unroll 8
  for (int j = 0; j < count; ++j) __builtin_prefetch(next + b.offset(j), 0, 2);
  if constexpr (visit == Visit::part) next += PartOfPanel<Vectors>::floats;
  else next += b.row_step;
  make_opaque(next);
}

/// Panels that a tile of so many vectors reads.
template <int Vectors>
inline constexpr int panels_of_tile = (Vectors * lanes + panel_columns - 1) / panel_columns;

/// acc[i][j] = fma(a[i, p], b[p, j], acc[i][j]) for p = 0 … k-1. Partial: only `count` elements of
/// the last vector of b are read, the others count as 0, and only `registers` of its Lanes change.
template <class Arch, int Rows, int Vectors, Visit visit = Visit::again, bool Partial = false,
          int registers = Lanes<Arch>::parts, class Left>
HEADLANE_INLINE void multiply(Index k, const Left& a, const Panels& b, Accumulators<Arch, Rows, Vectors>& acc,
                              float* keep = nullptr, Index count = lanes) {
  using R = Register<Arch>;
  constexpr int pass = registers < registers_per_pass<Arch> ? registers : registers_per_pass<Arch>;
#pragma GCC unroll 2
  for (int first = 0; first < registers; first += pass) {
    Left left = a;
    const float* right = b.data + first * R::width;
    const float* next = b.next;
    float* kept = visit == Visit::keep ? keep + first * R::width : nullptr;
    const auto multiply_by = [&](int p) HEADLANE_INLINE_LAMBDA {
      prefetch_next<visit, Vectors>(next, b);
      const auto load = [&](int j, int part) HEADLANE_INLINE_LAMBDA {
        const float* at = right + p * b.row_step + b.offset(j) + part * R::width;
        const bool whole = !Partial || j < Vectors - 1;
        return whole ? R::load(at) : R::load_some(at, count - (first + part) * R::width, 0.0f);
      };
      multiply_row<Arch, Rows, Vectors, visit, pass>(left, p, first, acc, kept, load);
    };
    constexpr int at_once = Partial ? 1 : Left::at_once;
    Index rest = k;
    for (; rest >= at_once; rest -= at_once, right += at_once * b.row_step) {
#pragma GCC unroll 2
      for (int p = 0; p < at_once; ++p) multiply_by(p);
      left.next(at_once);
    }
    if (rest > 0) multiply_by(0);
  }
}

}  // namespace
}  // namespace headlane::internal::kernels
