// Products of 8-bit integers: quantised rows times panels of quads.
#pragma once

#include "kernels/gemm/block.hpp"
#include "kernels/simd/integer_unit.hpp"

namespace headlane::internal::kernels {
namespace {

/// The rows of a tile, walked along k by quads: a pointer for every three of them, as StridedRows.
template <int Rows>
struct QuantisedTile {
  static constexpr int group = 3;
  const std::int8_t* data[(Rows + group - 1) / group];
  Index step;
  HEADLANE_INLINE QuantisedTile(const std::int8_t* first, Index step_) : step(step_) {
#pragma GCC unroll 8
    for (int i = 0; i < Rows; i += group) data[i / group] = first + i * step;
  }
  HEADLANE_INLINE const std::int8_t* operator[](int i) const { return data[i / group] + i % group * step; }
  HEADLANE_INLINE void next() {
#pragma GCC unroll 8
    for (const std::int8_t*& row : data) make_opaque(row += 4);
  }
};

/// The initial value of the sums of a column. It is -128 · Σ q_b if 128 was added to the rows.
template <class R, class Unit>
HEADLANE_INLINE typename R::Int start_of_column([[maybe_unused]] const float* b_sums) {
  using Int = typename R::Int;
  if constexpr (Unit::unsigned_rows) return Int(0) - (R::to_int(R::load(b_sums)) << 7);
  else return Int(0);
}

/// result = fma(outlier of the row, its q_b, fma(centre of the row, Σ q_b, float(Σ q_a · q_b) ·
/// scale of the row)) · scale of the column.
template <class Arch, class Unit, int Rows, int Vectors>
HEADLANE_INLINE void multiply_quads(const GemmBlock& block, Index row, Index column,
                                    Accumulators<Arch, Rows, Vectors>& result) {
  using R = Register<Arch>;
  using Int = typename R::Int;
  constexpr int pass = registers_per_pass<Arch>;
  const QuantisedRows& a = *block.quantised;
  const PanelsOf<Int8Quad> b{
      static_cast<const Int8Quad*>(block.b) + column / panel_columns * block.b_panel_step + column % panel_columns,
      block.b_row_step, block.b_panel_step};
#pragma GCC unroll 2
  for (int first = 0; first < Lanes<Arch>::parts; first += pass) {
    const float* b_sums = block.b_sums + column + first * R::width;
    Int sums[Rows][Vectors][pass];
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j)
#pragma GCC unroll 8
      for (int part = 0; part < pass; ++part) {
        const Int start = start_of_column<R, Unit>(b_sums + j * lanes + part * R::width);
#pragma GCC unroll 16
        for (int i = 0; i < Rows; ++i) sums[i][j][part] = start;
      }
    QuantisedTile<Rows> left(a.numbers + row * a.row_step, a.row_step);
    const Int8Quad* right = b.data + first * R::width;
    for (Index rest = block.k; rest > 0; rest -= 4, left.next(), right += b.row_step)
#pragma GCC unroll 2
      for (int pair = 0; pair < pairs_of_quad<Unit>; ++pair) {
        typename Unit::Weights w[Vectors][pass];
#pragma GCC unroll 8
        for (int j = 0; j < Vectors; ++j)
#pragma GCC unroll 8
          for (int part = 0; part < pass; ++part)
            w[j][part] = weights_of<Unit>(right + b.offset(j) + part * R::width, pair);
#pragma GCC unroll 16
        for (int i = 0; i < Rows; ++i) {
          const auto x = Unit::left(left[i] + pair * a.odd);
#pragma GCC unroll 8
          for (int j = 0; j < Vectors; ++j)
#pragma GCC unroll 8
            for (int part = 0; part < pass; ++part) sums[i][j][part] = Unit::dot(sums[i][j][part], w[j][part], x);
        }
      }
    const float* scales = block.b_scales + column + first * R::width;
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      const Index at = a.outlier_columns[row + i];
      const Int8Quad* quads = b.data + first * R::width + (at >> 2) * b.row_step;  // less than a signed division
      const typename R::Float outlier(a.outliers[row + i]), scale(a.scales[row + i]), centre(a.centres[row + i]);
#pragma GCC unroll 8
      for (int j = 0; j < Vectors; ++j)
#pragma GCC unroll 8
        for (int part = 0; part < pass; ++part) {
          const auto weights = R::load(quads + b.offset(j) + part * R::width, static_cast<int>(at & 3));
          const auto others =
              R::fma(centre, R::load(b_sums + j * lanes + part * R::width), R::to_float(sums[i][j][part]) * scale);
          result[i][j].part[first + part] =
              R::fma(outlier, weights, others) * R::load(scales + j * lanes + part * R::width);
        }
    }
  }
}

/// Some rows, at most those of a tile, times all columns from `first` on.
template <class Arch, class Unit, int Rows>
__attribute__((noinline)) void int8_rows(const GemmBlock& block, Index row, Index first, Index columns) {
  for_each_column_tile<Tile<Arch>, Rows, false>(columns, [&](Index at, auto width) {
    const Index column = first + at;
    Lanes<Arch> acc[Rows][width.value];
    prefetch_operands<Arch, Rows, width.value>(block, row, column);
    multiply_quads<Arch, Unit, Rows, width.value>(block, row, column, acc);
    finish_tile<Arch, Rows, width.value, Has::either>(acc, block, row, column);
  });
}

/// A strip goes through the columns panel by panel if it is several tiles, which then find the
/// panel in the L1.
template <class Arch, bool Extended>
void gemm_int8(const GemmBlock& block) noexcept {
  using Unit = IntegerUnit<Arch, Extended>;
  for_each_part(block.m, strip_rows, [&](Index strip, Index rows) {
    const Index at_once = rows <= Unit::rows ? block.n : panel_columns;
    for (Index column = 0; column < block.n; column += at_once) {
      const Index columns = block.n - column < at_once ? block.n - column : at_once;
      const auto multiply = [&](Index first, auto height) {
        int8_rows<Arch, Unit, height.value>(block, strip + first, column, columns);
      };
      if constexpr (Unit::in_pairs) for_each_halved_part<Unit::rows>(rows, multiply);
      else
        for_each_part(rows, Unit::rows, [&](Index first, Index count) {
          with_constant<Unit::rows>(count, [&](auto height) { multiply(first, height); });
        });
    }
  });
}

}  // namespace
}  // namespace headlane::internal::kernels
