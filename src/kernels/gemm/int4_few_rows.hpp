// Products of few rows of 8-bit integers by weights in groups of 4 bits, which are multiplied as
// they are stored.
#pragma once

#include "kernels/gemm/int8_groups.hpp"

namespace headlane::internal::kernels {
namespace {

/// So few rows are multiplied by groups of 4 bits without widening these first: 1, 2, 4 and 8 rows
/// of 512 × 32768 take 0.4, 0.45, 0.56 and 0.87 of the time, with AVX2 0.21 to 0.56 (Zen 5).
/// Without VNNI 1 row takes 0.19, 12 and 24 rows of 512 × 4096 0.77 and 0.92, 48 rows 1.01 (AVX2,
/// Zen 4).
template <class Unit>
inline constexpr Index few_rows = Unit::in_pairs ? 24 : 8;

/// Quantised rows in the order of the words of such a group.
template <class Unit>
struct FewRows {
  alignas(64) std::int8_t numbers[few_rows<Unit>][block_size];  ///< of each eight, those at 0, 2, 4, 6 come first
  std::int32_t starts[few_rows<Unit>][block_size / 32];         ///< -8 · Σ of each group
};

template <class Unit>
__attribute__((noinline)) void order_rows(const GemmBlock& block, FewRows<Unit>& to) {
  const QuantisedRows& from = *block.quantised;
  constexpr int zero = Unit::unsigned_rows ? 128 : 0;
  for (Index row = 0; row < block.m; ++row)
    for (Index group = 0; group * 32 < block.k; ++group) {
      const std::int8_t* x = from.numbers + row * from.row_step + group * 32;
      std::int8_t* ordered = to.numbers[row] + group * 32;
      std::int32_t sum = 0;
      for (Index i = 0; i < 32; ++i) {
        const auto number = static_cast<std::int8_t>(x[place_of<Unit>(i, from.odd)] - zero);
        ordered[i / 8 * 8 + i % 2 * 4 + i % 8 / 2] = number;
        sum += number;
      }
      to.starts[row][group] = -8 * sum;
    }
}

/// True if the unit multiplies unsigned by signed bytes.
template <class Unit>
inline constexpr bool takes_nibbles = Unit::in_pairs || Unit::unsigned_rows;

/// The sum of a group, from `start` on.
template <class Unit, bool = Unit::in_pairs>
struct GroupSum {
  using Int = typename Unit::Int;
  Int sum;
  HEADLANE_INLINE GroupSum() = default;
  explicit HEADLANE_INLINE GroupSum(std::int32_t start) : sum(start) {}
  HEADLANE_INLINE void add(const Int& w, typename Unit::Left x) { sum = Unit::dot(sum, x, w); }  // w is unsigned
  [[nodiscard]] HEADLANE_INLINE Int total(std::int32_t /*start*/) const { return sum; }
};
/// Without VNNI: in 16 bits, which hold eight sums of two products of 15 · 127.
template <class Unit>
struct GroupSum<Unit, true> {
  using Int = typename Unit::Int;
  typename Unit::Weights sums{};
  HEADLANE_INLINE GroupSum() = default;
  explicit HEADLANE_INLINE GroupSum(std::int32_t /*start*/) {}
  HEADLANE_INLINE void add(const Int& w, typename Unit::Left x) { sums = Unit::add_bytes(sums, w, x); }
  [[nodiscard]] HEADLANE_INLINE Int total(std::int32_t start) const { return Int(start) + Unit::added_pairs(sums); }
};

/// acc as in multiply_groups, by groups of 4 bits. The weights have 8 added, so that they are
/// unsigned, and the sums begin at -8 · Σ left.
template <class Arch, class Unit, int Rows, int Vectors>
HEADLANE_INLINE void multiply_few(Index k, const FewRows<Unit>& a, const Int4Group* group, Index row, Index within,
                                  Accumulators<Arch, Rows, Vectors>& acc) {
  using R = Register<Arch>;
  using Int = typename R::Int;
  constexpr int parts = Lanes<Arch>::parts;
  const Int low(0x0f0f0f0f), eight(0x08080808);
  for (Index g = 0; g * 32 < k; ++g, ++group) {
    GroupSum<Unit> sums[Rows][Vectors][parts];
#pragma GCC unroll 2
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (int j = 0; j < Vectors; ++j)
#pragma GCC unroll 8
        for (int part = 0; part < parts; ++part) sums[i][j][part] = GroupSum<Unit>(a.starts[row + i][g]);
#pragma GCC unroll 4
    for (int word = 0; word < 4; ++word) {
      const Int4Oct* words = group->numbers[word] + within;
#pragma GCC unroll 8
      for (int j = 0; j < Vectors; ++j)
#pragma GCC unroll 8
        for (int part = 0; part < parts; ++part) {
          const Int bits = R::load_int(&words[j * lanes + part * R::width].bits);
          const Int even = (bits & low) ^ eight, odd = (R::shift_right(bits, 4) & low) ^ eight;
#pragma GCC unroll 2
          for (int i = 0; i < Rows; ++i) {
            const std::int8_t* x = a.numbers[row + i] + g * 32 + word * 8;
            sums[i][j][part].add(even, Unit::left(x));
            sums[i][j][part].add(odd, Unit::left(x + 4));
          }
        }
    }
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j)
#pragma GCC unroll 8
      for (int part = 0; part < parts; ++part) {
        const auto scale = R::load(group->scales + within + j * lanes + part * R::width);
#pragma GCC unroll 2
        for (int i = 0; i < Rows; ++i)
          acc[i][j].part[part] =
              R::fma(R::to_float(sums[i][j][part].total(a.starts[row + i][g])), scale, acc[i][j].part[part]);
      }
  }
}

/// Few rows times a panel of groups of 4 bits.
template <class Arch, class Unit, int Rows>
__attribute__((noinline)) void few_grouped_rows(const GemmBlock& block, const FewRows<Unit>& a, const Int4Group* groups,
                                                Index row, Index panel) {
  constexpr int vectors = Tile<Arch>::vectors;
  for_each_tile_of_panel<Arch, Rows>(block, groups, row, panel, [&](Index within, auto& acc) HEADLANE_INLINE_LAMBDA {
    multiply_few<Arch, Unit, Rows, vectors>(block.k, a, groups, row, within, acc);
  });
}

/// Few rows go through a panel before the next one.
template <class Arch, class Unit>
__attribute__((noinline)) void gemm_few_groups(const GemmBlock& block) {
  FewRows<Unit> ordered;
  order_rows<Unit>(block, ordered);
  for (Index column = 0; column < block.n; column += panel_columns) {
    const Int4Group* groups = static_cast<const Int4Group*>(block.b) + column / panel_columns * block.b_panel_step;
    for_each_halved_part<2>(block.m, [&](Index row, auto height) {
      few_grouped_rows<Arch, Unit, height.value>(block, ordered, groups, row, column);
    });
  }
}

}  // namespace
}  // namespace headlane::internal::kernels
