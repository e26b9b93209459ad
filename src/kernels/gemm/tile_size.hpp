// How many rows and vectors the register tile of an instruction set has.
#pragma once

#include "kernels/simd/lanes.hpp"

#include <type_traits>

namespace headlane::internal::kernels {
namespace {

/// The accumulators that fit: rows · vectors Lanes beside one row of b and one broadcast element of
/// a. Two FMA pipes of latency 4 need at least 8 accumulators; more rows mean fewer loads per fma.
/// Default for 16 registers of 8 floats: 6 × 16 floats are 12 registers, 2 for b, 1 for a.
/// unrolled_from: tiles of so many rows multiply by two rows of b at a time, and leave prefetching
/// to the beginning of each chain. 12 fmas of AVX2, 6 cycles, came with 15 other instructions, now
/// 10: Zen 3 went from 89 to 91 % of the FMA peak, and from about 64 to 74 % while the other
/// hyperthread of the core took half of what it decodes. By four rows at a time it is slower, 88 %.
template <class Arch>
struct Tile {
  static constexpr int rows = 6, vectors = 1;
  static constexpr int unrolled_from = Register<Arch>::width == 8 ? 1 : rows + 1;
};
#if defined(__AVX512F__)
/// 32 registers of 16: 12 × 32 floats are 24 registers, 2 for b, 1 for a; 14 loads for 24 fmas.
/// Additions to pointers take ports of the fmas of an Intel CPU: unrolled, 8 × 512 × 512 takes 0.95
/// to 0.97 of the time, larger products 0.95 to 1.01 (Emerald Rapids). Up to 6 rows are 64 or more
/// columns, and would spill.
template <>
struct Tile<xsimd::avx512bw> {
  static constexpr int rows = 12, vectors = 2;
  static constexpr int unrolled_from = 7;
};
#endif
/// One float a register: 1 × 16 is 16 accumulators.
template <>
struct Tile<Scalar> {
  static constexpr int rows = 1, vectors = 1;
  static constexpr int unrolled_from = rows + 1;
};
template <>
struct Tile<Portable> {
  static constexpr int rows = 1, vectors = 1;
  static constexpr int unrolled_from = rows + 1;
};

/// The tile that multiplies by panels of floats; other right operands are left to Tile, which reads
/// them less often. With AVX2 3 × 32 floats: 7 loads for 12 fmas instead of 8, from lines that are
/// neighbours. Packed 512 × 512 × 512 takes 0.9 to 0.95 of the time of 6 × 16, 480 × 480 × 128 0.8,
/// attention 0.86 to 0.99 (Zen 3, where another thread often shared the core).
struct WideTile {
  static constexpr int rows = 3, vectors = 2;
};
template <class Arch>
using PanelTile = std::conditional_t<Register<Arch>::width == 8, WideTile, Tile<Arch>>;

/// True if so many rows are one tile: of 6 × 16 floats up to 4, since two tiles of 2 × 32 read b
/// twice (4 × 512 × 512 in 1.05 of the time), two of 3 × 32 are faster (6 × 512 × 512 in 0.95).
template <class Arch>
constexpr bool is_one_tile(Index rows) {
  return rows <= (PanelTile<Arch>::rows < Tile<Arch>::rows ? PanelTile<Arch>::rows + 1 : Tile<Arch>::rows);
}

/// The most rows that take integers of 8 and 4 bits out of their words by mantissas. More rows wait
/// less for the widening; with AVX2 they would spill.
template <class Arch>
inline constexpr int rows_by_mantissa = Register<Arch>::width == 16  ? 4
                                        : Register<Arch>::width == 8 ? 1
                                                                     : 0;

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

}  // namespace
}  // namespace headlane::internal::kernels
