// The register tile: rows × vectors accumulators, and the loop over k that updates them. Every
// product of the library uses it.
#pragma once

#include "kernels/gemm/operands.hpp"

namespace headlane::internal::kernels {
namespace {

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

/// Additional work of a tile on the rows of b that it multiplies by.
enum class Visit {
  again,  // nothing: they were read before
  part,   // prefetches the next part of a panel into the L2 (PartOfPanel)
  first,  // prefetches the rows of the next panel into the L2
  keep,   // does so, and stores its own rows at `keep`, panel_columns apart
};

/// True if a tile of so many rows loads registers of b one by one beside all rows of a: the latter
/// are fewer.
template <class Arch, int Rows, int registers_of_b>
inline constexpr bool is_one_by_one = Register<Arch>::width == 8 && Rows < registers_of_b;

/// True if a tile of floats does so, too, and keeps each register until all rows have had it: GCC
/// would read b in each fma, since with 3 × 128 floats of AVX-512 it does not fit beside the sums.
/// 512 × 512 that are not packed take 0.73 (2 rows) and 0.57 (3 rows) of the time, packed 0.95 and
/// 0.87, with AVX2 2 rows 0.82 and 0.9 (Zen 4). Where elements are widened, 3 rows take longer.
template <class Arch, int Rows, int registers_of_b>
inline constexpr bool loads_once = Rows > 1 && Rows < registers_of_b &&
                                   (Register<Arch>::width == 16 || (Register<Arch>::width == 8 && Rows == 2));

/// acc[i][j] = fma(left.at(i, p), row[j], acc[i][j]) for one row of b, of which load(j, part)
/// returns register `part` of a pass.
template <class Arch, int Rows, int Vectors, Visit visit, int pass = registers_per_pass<Arch>,
          bool one_by_one = is_one_by_one<Arch, Rows, Vectors * pass>, class Left, class Load>
HEADLANE_INLINE void multiply_row(const Left& left, int p, int first, Accumulators<Arch, Rows, Vectors>& acc,
                                  float*& kept, const Load& load) {
  using R = Register<Arch>;
  using Float = typename R::Float;
  const auto load_and_keep = [&](int j, int part) HEADLANE_INLINE_LAMBDA {
    const Float row = load(j, part);
    if constexpr (visit == Visit::keep) R::store(kept + j * lanes + part * R::width, row);
    return row;
  };
  if constexpr (one_by_one) {
    Float factor[Rows];
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) factor[i] = Float(left.at(i, p));
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j)
#pragma GCC unroll 8
      for (int part = 0; part < pass; ++part) {
        const Float row = load_and_keep(j, part);
#pragma GCC unroll 8
        for (int i = 0; i < Rows; ++i)
          acc[i][j].part[first + part] = R::fma(factor[i], row, acc[i][j].part[first + part]);
      }
  } else {
    Float row[Vectors][pass];
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j)
#pragma GCC unroll 8
      for (int part = 0; part < pass; ++part) row[j][part] = load_and_keep(j, part);
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      const Float factor(left.at(i, p));
#pragma GCC unroll 8
      for (int j = 0; j < Vectors; ++j)
#pragma GCC unroll 8
        for (int part = 0; part < pass; ++part)
          acc[i][j].part[first + part] = R::fma(factor, row[j][part], acc[i][j].part[first + part]);
    }
  }
  if constexpr (visit == Visit::keep) kept += panel_columns;
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
  constexpr bool once = loads_once<Arch, Rows, Vectors * pass>;
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
        const auto row = whole ? R::load(at) : R::load_some(at, count - (first + part) * R::width, 0.0f);
        if constexpr (once) return R::in_register(row);
        else return row;
      };
      multiply_row<Arch, Rows, Vectors, visit, pass, once || is_one_by_one<Arch, Rows, Vectors * pass>>(
          left, p, first, acc, kept, load);
    };
    constexpr int at_once = Partial ? 1 : Left::template at_once<Arch, Rows>;
    Index rest = k;
    for (; rest >= at_once; rest -= at_once, right += at_once * b.row_step) {
#pragma GCC unroll 2
      for (int p = 0; p < at_once; ++p) {
        multiply_by(p);
        if (p + 1 < at_once) left.follow(acc[Rows - 1][Vectors - 1].part[first + pass - 1]);
      }
      left.next(at_once);
    }
    if (rest > 0) multiply_by(0);
  }
}

}  // namespace
}  // namespace headlane::internal::kernels
