// Products of 8-bit integers by weights in groups: quantised rows times panels of groups.
#pragma once

#include "kernels/gemm/int8.hpp"

#include <cstddef>

namespace headlane::internal::kernels {
namespace {

/// The initial values of the sums of a panel, by group and column, if 128 was added to the rows.
/// They are computed once for all tiles of the panel: computing them in each tile takes 1.5 times
/// as long (512 × 2048 × 512, Emerald Rapids).
struct GroupStarts {
  std::uint32_t of[block_size / 32][panel_columns];
};
template <class Arch, class Unit>
HEADLANE_INLINE void find_starts(const Int8Group* groups, Index count, GroupStarts& starts) {
  using R = Register<Arch>;
  using Int = typename R::Int;
  for (Index g = 0; g < count; ++g)
    for (Index j = 0; j < panel_columns; j += R::width) {
      Int sum = Int(0);
      for (const auto& quads : groups[g].numbers) sum = Unit::dot(sum, Unit::weights(quads + j), Unit::zero());
      R::store_int(starts.of[g] + j, Int(0) - sum);
    }
}

/// acc[i][j] = Σ over groups, in order, as fma(float(Σ q_a · q_b), scale, acc[i][j]).
template <class Arch, class Unit, int Rows, int Vectors>
HEADLANE_INLINE void multiply_groups(const GemmBlock& block, const Int8Group* groups, const GroupStarts& starts,
                                     Index row, Index within, Accumulators<Arch, Rows, Vectors>& acc) {
  using R = Register<Arch>;
  using Int = typename R::Int;
  constexpr int pass = registers_per_pass<Arch>;
  const QuantisedRows& a = *block.quantised;
#pragma GCC unroll 2
  for (int first = 0; first < Lanes<Arch>::parts; first += pass) {
    QuantisedTile<Rows> left(a.numbers + row * a.row_step, a.row_step);
    const Int8Group* group = groups;
    const auto* start_row = starts.of;
    const Index column = within + first * R::width;
    for (Index rest = block.k; rest > 0; rest -= 32, ++group, ++start_row) {
      Int sums[Rows][Vectors][pass];
#pragma GCC unroll 8
      for (int j = 0; j < Vectors; ++j)
#pragma GCC unroll 8
        for (int part = 0; part < pass; ++part) {
          Int start = Int(0);
          if constexpr (Unit::unsigned_rows) start = R::load_int(*start_row + column + j * lanes + part * R::width);
#pragma GCC unroll 16
          for (int i = 0; i < Rows; ++i) sums[i][j][part] = start;
        }
      for (int quad = 0; quad < 8; ++quad, left.next()) {
        const Int8Quad* quads = group->numbers[quad] + column;
#pragma GCC unroll 2
        for (int pair = 0; pair < pairs_of_quad<Unit>; ++pair)
#pragma GCC unroll 16
          for (int i = 0; i < Rows; ++i) {
            const auto x = Unit::left(left[i] + pair * a.odd);
#pragma GCC unroll 8
            for (int j = 0; j < Vectors; ++j)
#pragma GCC unroll 8
              for (int part = 0; part < pass; ++part)
                sums[i][j][part] =
                    Unit::dot(sums[i][j][part], weights_of<Unit>(quads + j * lanes + part * R::width, pair), x);
          }
      }
#pragma GCC unroll 8
      for (int j = 0; j < Vectors; ++j)
#pragma GCC unroll 8
        for (int part = 0; part < pass; ++part) {
          const auto scale = R::load(group->scales + column + j * lanes + part * R::width);
#pragma GCC unroll 16
          for (int i = 0; i < Rows; ++i)
            acc[i][j].part[first + part] = R::fma(R::to_float(sums[i][j][part]), scale, acc[i][j].part[first + part]);
        }
    }
  }
}

/// acc[i][j] = fma(outlier of the row, its weights, fma(centre of the row, sum of the column,
/// acc[i][j] · scale of the row)). An outlier counts as 0 in the blocks that do not have it, a
/// centre in those after the first.
template <class Arch, int Rows, int Vectors, class Group>
HEADLANE_INLINE void add_floats(const GemmBlock& block, const Group* groups, Index row, Index panel, Index within,
                                Accumulators<Arch, Rows, Vectors>& acc) {
  using R = Register<Arch>;
  constexpr std::size_t rows_of_word = Group::rows_of_word;
  const QuantisedRows& a = *block.quantised;
  const float* sums = block.b_sums + panel;
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
    const auto column = static_cast<std::size_t>(a.outlier_columns[row + i] - a.first);
    const bool inside = column < static_cast<std::size_t>(block.k);
    const std::size_t at = inside ? column : 0;
    const Group& group = groups[at / 32];
    const typename R::Float outlier(inside ? a.outliers[row + i] : 0.0f), scale(a.scales[row + i]);
    const typename R::Float centre(a.first == 0 ? a.centres[row + i] : 0.0f);
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j)
#pragma GCC unroll 16
      for (int part = 0; part < Lanes<Arch>::parts; ++part) {
        const Index to = within + j * lanes + part * R::width;
        const auto numbers = R::load(group.numbers[at % 32 / rows_of_word] + to, static_cast<int>(at % rows_of_word));
        const auto others = R::fma(centre, R::load(sums + to), acc[i][j].part[part] * scale);
        acc[i][j].part[part] = R::fma(outlier, numbers * R::load(group.scales + to), others);
      }
  }
}

/// The tiles of some rows and a panel of groups, of which block.n columns are left from `panel` on:
/// multiply(column, acc) returns the sums of one that begins at this column of the panel.
template <class Arch, int Rows, class Group, class Multiply>
HEADLANE_INLINE void for_each_tile_of_panel(const GemmBlock& block, const Group* groups, Index row, Index panel,
                                            const Multiply& multiply) {
  constexpr int vectors = Tile<Arch>::vectors;
  for (Index within = 0; within < panel_columns && panel + within < block.n; within += vectors * lanes) {
    Lanes<Arch> acc[Rows][vectors];
    clear<Arch, Rows, vectors>(acc);
    prefetch_operands<Arch, Rows, vectors>(block, row, panel + within);
    multiply(within, acc);
    add_floats<Arch, Rows, vectors>(block, groups, row, panel, within, acc);
    finish_tile<Arch, Rows, vectors, Has::either>(acc, block, row, panel + within);
  }
}

/// Some rows times a panel.
template <class Arch, class Unit, int Rows>
__attribute__((noinline)) void grouped_rows(const GemmBlock& block, const Int8Group* groups, const GroupStarts& starts,
                                            Index row, Index panel) {
  constexpr int vectors = Tile<Arch>::vectors;
  for_each_tile_of_panel<Arch, Rows>(block, groups, row, panel, [&](Index within, auto& acc) HEADLANE_INLINE_LAMBDA {
    multiply_groups<Arch, Unit, Rows, vectors>(block, groups, starts, row, within, acc);
  });
}

/// Four integers of 4 bits, the lowest ones of each word, as bytes.
template <class R>
HEADLANE_INLINE typename R::Int bytes_of(typename R::Int bits) {
  using Int = typename R::Int;
  const Int two = (bits & Int(0xff)) | (bits & Int(0xff00)) << 8;
  const Int four = (two & Int(0x000f000f)) | (two & Int(0x00f000f0)) << 4, negative = four & Int(0x08080808);
  return four | ((negative << 5) - (negative << 1));
}

/// Groups of 4 bits as groups of 8.
template <class Arch>
__attribute__((noinline)) void widen_groups(const Int4Group* from, Index count, Int8Group* to) {
  using R = Register<Arch>;
  for (Index g = 0; g < count; ++g, ++from, ++to) {
    for (int quad = 0; quad < 8; ++quad)
      for (Index j = 0; j < panel_columns; j += R::width) {
        const auto words = R::load_int(&from->numbers[quad / 2][j].bits);
        std::uint32_t bytes[R::width];
        R::store_int(bytes, bytes_of<R>(quad % 2 == 0 ? words : R::shift_right(words, 16)));
        __builtin_memcpy(to->numbers[quad] + j, bytes, sizeof bytes);
      }
    __builtin_memcpy(to->scales, from->scales, sizeof to->scales);
  }
}

/// All rows go through a panel before the next one, which stays in the L1.
template <class Arch, bool Extended>
__attribute__((noinline)) void gemm_groups(const GemmBlock& block) {
  using Unit = IntegerUnit<Arch, Extended>;
  constexpr int tile_rows = (Unit::rows + 1) / 2;                     // beside the sums of integers, those of floats
  alignas(64) std::byte memory[block_size / 32 * sizeof(Int8Group)];  // without constructors
  auto* const widened = reinterpret_cast<Int8Group*>(memory);
  alignas(64) GroupStarts starts;
  const Index count = (block.k + 31) / 32;
  for (Index column = 0; column < block.n; column += panel_columns) {
    const Index at = column / panel_columns * block.b_panel_step;
    const Int8Group* groups = static_cast<const Int8Group*>(block.b) + at;
    if (block.b_type == DType::int4_group32) {
      widen_groups<Arch>(static_cast<const Int4Group*>(block.b) + at, count, widened);
      groups = widened;
    }
    if constexpr (Unit::unsigned_rows) find_starts<Arch, Unit>(groups, count, starts);
    for_each_halved_part<tile_rows>(block.m, [&](Index row, auto height) {
      grouped_rows<Arch, Unit, height.value>(block, groups, starts, row, column);
    });
  }
}

}  // namespace
}  // namespace headlane::internal::kernels
