// Products of bfloat16: rows that are rounded times panels of pairs of rows. A pair adds
// fma(even, even, fma(odd, odd, sum)), where operands and results that are denormal count as 0:
// VDPBF16PS of AVX512-BF16, whatever the floating-point state. Without it, these two fmas.
#pragma once

#include "kernels/gemm/block.hpp"
#include "kernels/gemm/pack.hpp"
#include "kernels/simd/flushing.hpp"
#include "kernels/simd/half.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace headlane::internal::kernels {
namespace {

/// Two rows of b, which are multiplied at once. Extended: by VDPBF16PS, which takes the two
/// elements of a as one word; otherwise they are floats.
template <bool Extended>
struct DotPair : BfloatPair {};
template <bool Extended>
inline constexpr Index rows_of<DotPair<Extended>> = 2;
template <>
inline constexpr Index columns_of_word<DotPair<true>> = 2;
/// Rounding to bfloat16 leaves errors next to which those of a long chain are small.
template <bool Extended>
inline constexpr Index chain_of<DotPair<Extended>> = block_size;

/// True for the instruction sets with VDPBF16PS, if the CPU has it.
template <class Arch>
inline constexpr bool has_bfloat_dot = false;
#if defined(__AVX512F__)
template <>
inline constexpr bool has_bfloat_dot<xsimd::avx512bw> = true;
#endif

template <class Arch, int Rows, int Vectors>
HEADLANE_INLINE void pin(Accumulators<Arch, Rows, Vectors>& acc) {
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j)
#pragma GCC unroll 16
      for (int part = 0; part < Lanes<Arch>::parts; ++part) pin(acc[i][j].part[part]);
}

/// The two fmas of each pair, in registers. The words are loaded for each of them: 3 × 32 floats of
/// AVX2 leave no registers to keep them in, and GCC spilled sums for them (3 rows from the cache
/// took 1.5 times as long; by 3 × 16 they take 0.93 of this, but 1.6 from memory; Zen 4).
template <class Arch, int Rows, int Vectors>
HEADLANE_INLINE void multiply_in_two(Index k, const StridedRows<Arch, Rows>& a, const PanelsOf<DotPair<false>>& b,
                                     Accumulators<Arch, Rows, Vectors>& acc) {
  using R = Register<Arch>;
#pragma GCC unroll 2
  for (int first = 0; first < Lanes<Arch>::parts; first += registers_per_pass<Arch>) {
    StridedRows<Arch, Rows> left = a;
    const BfloatPair* words = b.data + first * R::width;
    float* not_kept = nullptr;
    for (Index rest = k; rest > 0; rest -= 2, words += b.row_step) {
#pragma GCC unroll 2
      for (int r = 1; r >= 0; --r) {
        multiply_row<Arch, Rows, Vectors, Visit::again>(
            left, r, first, acc, not_kept,
            [&](int j, int part) HEADLANE_INLINE_LAMBDA { return R::load(words + b.offset(j) + part * R::width, r); });
        if constexpr (is_one_by_one<Arch, Rows, Vectors * Lanes<Arch>::parts> && Rows > 2) make_opaque(words);
      }
      left.next(2);
    }
  }
}

/// The same element by element, where no state flushes as it should.
template <class Arch, int Rows, int Vectors>
__attribute__((noinline)) void multiply_exactly(Index k, StridedRows<Arch, Rows> left,
                                                const PanelsOf<DotPair<false>>& b,
                                                Accumulators<Arch, Rows, Vectors>& acc) {
  float sums[Rows][Vectors][lanes] = {};
  const BfloatPair* words = b.data;
  for (Index rest = k; rest > 0; rest -= 2, words += b.row_step) {
    for (int r = 1; r >= 0; --r)
      for (int i = 0; i < Rows; ++i)
        for (int j = 0; j < Vectors; ++j)
          for (Index lane = 0; lane < lanes; ++lane) {
            const auto factor = static_cast<float>(words[b.offset(j) + lane].row[r]);
            sums[i][j][lane] = flushing_fma(left.at(i, r), factor, sums[i][j][lane]);
          }
    left.next(2);
  }
  for (int i = 0; i < Rows; ++i)
    for (int j = 0; j < Vectors; ++j) acc[i][j] = Lanes<Arch>::load(sums[i][j]);
}

/// acc[i][j] = the sum of the pairs 0 … (k-1)/2 of row i of a and column j of b; acc is 0 before.
template <class Arch, int Rows, int Vectors, Visit visit, bool Partial>
HEADLANE_INLINE void multiply(Index k, const StridedRows<Arch, Rows>& a, const PanelsOf<DotPair<false>>& b,
                              Accumulators<Arch, Rows, Vectors>& acc, float*, Index) {
  if constexpr (flushes<Arch>) {
    begin_flushing();
    pin<Arch, Rows, Vectors>(acc);
    multiply_in_two<Arch, Rows, Vectors>(k, a, b, acc);
    pin<Arch, Rows, Vectors>(acc);
    if (!end_flushing()) return;
  }
  multiply_exactly<Arch, Rows, Vectors>(k, a, b, acc);
}

#if defined(__AVX512F__)
template <class Arch, int Rows, int Vectors, Visit visit, bool Partial>
HEADLANE_INLINE void multiply(Index k, const StridedRows<Arch, Rows>& a, const PanelsOf<DotPair<true>>& b,
                              Accumulators<Arch, Rows, Vectors>& acc, float*, Index) {
  StridedRows<Arch, Rows> left = a;
  const BfloatPair* words = b.data;
  for (Index rest = k; rest > 0; rest -= 2, words += b.row_step, left.next(1)) {
    __m512 pairs[Vectors];
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j) pairs[j] = _mm512_loadu_ps(reinterpret_cast<const float*>(words + b.offset(j)));
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      const __m512 pair = _mm512_set1_ps(left.at(i, 0));
#pragma GCC unroll 8
      for (int j = 0; j < Vectors; ++j) {
        __m512 sum = acc[i][j].part[0];
        asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(pairs[j]), "v"(pair));
        acc[i][j].part[0] = sum;
      }
    }
  }
}
#endif

/// Rows of a tile, all columns.
template <class Arch, class T, int Rows>
__attribute__((noinline)) void gemm_row_of_tiles(const GemmBlock& block, Index row) {
  for_each_column_tile<Tile<Arch>, Rows, false>(
      block.n, [&](Index column, auto width) { gemm_tile<Arch, T, Rows, width.value>(block, row, column); });
}

template <class Arch, bool Extended>
void gemm_bfloat16(const GemmBlock& block) noexcept {
  using T = DotPair<Extended && has_bfloat_dot<Arch>>;
  for_each_halved_part<Tile<Arch>::rows>(
      block.m, [&](Index row, auto height) { gemm_row_of_tiles<Arch, T, height.value>(block, row); });
}

/// Rounds 16 elements to floats.
template <class Arch>
HEADLANE_INLINE void store_rounded(const Lanes<Arch>& x, float* to) {
  using R = Register<Arch>;
  using Int = typename R::Int;
#pragma GCC unroll 16
  for (int i = 0; i < Lanes<Arch>::parts; ++i) {
    const Int bits = rounded_bits<Arch>(x.part[i]) & Int(static_cast<std::int32_t>(0xffff0000));
    R::store(to + i * R::width, R::as_float(bits));
  }
}

#if defined(__AVX512F__)
/// Rounds 32 elements to the 16 words of their pairs.
template <class Arch>
HEADLANE_INLINE void store_words(const Lanes<Arch>& x, const Lanes<Arch>& y, float* to) {
  alignas(64) static constexpr std::int16_t upper_halves[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                                                23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                                                45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  _mm512_storeu_si512(to, _mm512_permutex2var_epi16(rounded_bits<Arch>(x.part[0]), _mm512_load_si512(upper_halves),
                                                    rounded_bits<Arch>(y.part[0])));
}
#endif

/// Rows are prefetched four ahead, since the hardware does not follow them from page to page:
/// 512 × 2048 × 512 from 1.76 to 1.86 times the speed of float32 (Zen 5).
template <class Arch, bool Extended>
void round_rows(const Source& source, float* packed) noexcept {
  constexpr Index height_of_strip = lanes;
  constexpr bool is_words = Extended && has_bfloat_dot<Arch>;
  constexpr Index at_once = is_words ? 2 * lanes : lanes;
  const auto [data, rows, columns, row_step, column_step] = source;
  for (Index first = 0; first < rows; first += height_of_strip) {
    const Index height = rows - first < height_of_strip ? rows - first : height_of_strip;
    float* const strip = packed + first * packed_row_stride;
    const bool contiguous = column_step == 1;
    if (!contiguous) pack_rows<Arch>({data + first * row_step, height, columns, row_step, column_step}, 1.0f, strip);
    for (Index r = 0; r < height; ++r) {
      float* const row = strip + r * packed_row_stride;
      const float* const from = contiguous ? data + (first + r) * row_step : row;
      const float* const ahead = contiguous ? data + (first + r + (first + r + 4 < rows ? 4 : 0)) * row_step : row;
      for (Index c = 0; c < columns; c += at_once) {
        __builtin_prefetch(ahead + c);
        const Lanes<Arch> x = load_some<Arch>(from + c, columns - c);
        if constexpr (is_words) {
          __builtin_prefetch(ahead + c + lanes);
          store_words<Arch>(x, load_some<Arch>(from + c + lanes, columns - c - lanes), row + c / 2);
        } else {
          store_rounded<Arch>(x, row + c);
        }
      }
    }
  }
}

}  // namespace
}  // namespace headlane::internal::kernels
