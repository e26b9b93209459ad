// The loop over k of a tile whose right operand is stored in another type: rows are widened to
// float as they are loaded.
#pragma once

#include "kernels/gemm/group_scale.hpp"
#include "kernels/gemm/tile.hpp"

#include <cstddef>

namespace headlane::internal::kernels {
namespace {

/// A row of words as float, for a tile of so many rows.
template <class Arch, int Rows, class T, class Row>
HEADLANE_INLINE typename Register<Arch>::Float load_row(const T* words, Row row) {
  using R = Register<Arch>;
  constexpr bool by_mantissa = std::is_same_v<T, Int8Quad> && Rows <= rows_by_mantissa<Arch>;
  if constexpr (rows_of<T> == 1) return R::load(words);
  else if constexpr (by_mantissa && !std::is_same_v<Row, int>) return R::template load_for_few<Row::value>(words);
  else return R::load(words, number_of(row));
}

/// f(Constant<0>), … f(Constant<Depth - 1>)
template <int Depth, int row = 0, class F>
HEADLANE_INLINE void for_constant_rows(const F& f) {
  f(Constant<row>{});
  if constexpr (row + 1 < Depth) for_constant_rows<Depth, row + 1>(f);
}

/// Calls f(row), of a Constant or an int, for the first rows of a word, all of them or `rest`. Of
/// few rows of a, which wait for the widening, they are constants: its shifts are, too.
template <class Arch, int Rows, int Depth, class F>
HEADLANE_INLINE void for_rows_of_word(Index rest, const F& f) {
  constexpr bool constant = Depth <= 2 || (Register<Arch>::width > 1 && (Depth <= 4 || Rows <= 4));
  if constexpr (constant) {
    if (rest >= Depth) return for_constant_rows<Depth>(f);
  }
  Index end = rest < Depth ? rest : Depth;
  make_opaque(end);  // or GCC unrolls the loop
  for (int row = 0; row < end; ++row) f(row);
}

/// One row of 16 bits prefetches its own panels, some bytes ahead. It waits for those of its tile,
/// which it reads side by side: more streams, with an end at each page, than the hardware's
/// prefetchers follow. With AVX-512, bfloat16 is read with 29 GB/s if that is 1 KiB and into the
/// L2, 25 if 2 KiB, 22.5 if 2 KiB into the L1, 26.5 if it is the panels of the next tile, which all
/// others prefetch (Zen 4, 1 thread). With AVX2 the L1 is better: 23 and 21.5 GB/s.
template <class Arch, int Rows, class T>
inline constexpr bool prefetches_own_panels = Rows == 1 && Register<Arch>::width > 1 && rows_of<T> <= 2;
template <class Arch>
inline constexpr bool prefetches_far = Register<Arch>::width == 16;
template <class Arch, class T>
inline constexpr Index bytes_ahead = prefetches_far<Arch> && rows_of<T> == 2 ? 1024 : 2048;

/// Prefetches a row of words of a panel; locality 3: into the L1, 2: into the L2.
template <int locality, class T>
HEADLANE_INLINE void prefetch_words(const T* words) {
  constexpr std::size_t line = 64, bytes = sizeof(T) * panel_columns;
  __builtin_prefetch(words, 0, locality);
  if constexpr (bytes > line) __builtin_prefetch(words + line / sizeof(T), 0, locality);
}

/// Calls f(i) for the panels of the next tile, i panels ahead, if `visit` prefetches them.
template <Visit visit, int Vectors, class F>
HEADLANE_INLINE void for_panels_to_prefetch(const F& f) {
  if constexpr (visit == Visit::again) return;
#pragma GCC unroll 4
  for (int i = 0; i < panels_of_tile<Vectors>; ++i) f(panels_of_tile<Vectors> + i);
}

/// acc[i][j] = fma(a[i, p], b[p, j], acc[i][j]) for p = 0 … k-1. Of the last vector everything is
/// read: it ends with zeros.
template <class Arch, int Rows, int Vectors, Visit visit, bool Partial, class Left, class T>
HEADLANE_INLINE void multiply(Index k, const Left& a, const PanelsOf<T>& b, Accumulators<Arch, Rows, Vectors>& acc,
                              float* keep, Index) {
  using R = Register<Arch>;
  constexpr int depth = rows_of<T>, per_panel = panel_columns / lanes, own = prefetches_far<Arch> ? 2 : 3;
#pragma GCC unroll 2
  for (int first = 0; first < Lanes<Arch>::parts; first += registers_per_pass<Arch>) {
    Left left = a;
    const T* words = b.data + first * R::width;
    float* kept = visit == Visit::keep ? keep + first * R::width : nullptr;
    for (Index rest = k; rest > 0; rest -= depth, words += b.row_step) {
      if constexpr (!prefetches_own_panels<Arch, Rows, T>) {
        for_panels_to_prefetch<visit, Vectors>(
            [&](int i) HEADLANE_INLINE_LAMBDA { prefetch_words<2>(words + i * b.panel_step); });
      } else {
        constexpr Index rows_ahead = bytes_ahead<Arch, T> / (panel_columns * sizeof(T));
#pragma GCC unroll 4
        for (int j = 0; j < Vectors; j += per_panel) prefetch_words<own>(words + b.offset(j) + rows_ahead * b.row_step);
      }
      for_rows_of_word<Arch, Rows, depth>(rest, [&](auto row_of_word) HEADLANE_INLINE_LAMBDA {
        multiply_row<Arch, Rows, Vectors, visit>(
            left, 0, first, acc, kept, [&](int j, int part) HEADLANE_INLINE_LAMBDA {
              const auto x = load_row<Arch, Rows>(words + b.offset(j) + part * R::width, row_of_word);
              if constexpr (!std::is_same_v<T, Int8Quad>) return x;
              else return x * R::load(b.scales + j * lanes + (first + part) * R::width);
            });
        left.next(1);
      });
    }
  }
}

/// The same for groups, of which k begins with a whole one.
template <class Arch, int Rows, int Vectors, Visit visit, bool Partial, class Left, class Group>
  requires(rows_of<Group> == 32)
HEADLANE_INLINE void multiply(Index k, const Left& a, const PanelsOf<Group>& b, Accumulators<Arch, Rows, Vectors>& acc,
                              float* keep, Index) {
  using R = Register<Arch>;
  constexpr int pass = registers_per_pass<Arch>, per_panel = panel_columns / lanes, depth = Group::rows_of_word;
  // One row of groups of 4 bits takes 1.4 times as long one by one (Zen 3), of 8 bits 0.63 (Zen 4).
  constexpr bool one_by_one = is_one_by_one<Arch, Rows, Vectors * pass> && !(is_for_few<Group> && depth == 8);
#pragma GCC unroll 2
  for (int first = 0; first < Lanes<Arch>::parts; first += pass) {
    Left left = a;
    float* kept = visit == Visit::keep ? keep + first * R::width : nullptr;
    const Group* group = b.data;
    const auto column = [&](int j, int part) { return b.within + j % per_panel * lanes + (first + part) * R::width; };
    for (Index rest = k; rest > 0; rest -= 32, ++group) {
      GroupScale<R, Group> scale[Vectors][pass];
#pragma GCC unroll 8
      for (int j = 0; j < Vectors; ++j)
#pragma GCC unroll 8
        for (int part = 0; part < pass; ++part)
          scale[j][part].load(group[j / per_panel * b.panel_step].scales + column(j, part));
      for_panels_to_prefetch<visit, Vectors>(
          [&](int i) HEADLANE_INLINE_LAMBDA { __builtin_prefetch(group[i * b.panel_step].scales, 0, 2); });
      for (Index w = 0; w < 32 / depth && w * depth < rest; ++w) {
        for_panels_to_prefetch<visit, Vectors>(
            [&](int i) HEADLANE_INLINE_LAMBDA { prefetch_words<2>(group[i * b.panel_step].numbers[w]); });
        for_rows_of_word<Arch, Rows, depth>(rest - w * depth, [&](auto row_of_word) HEADLANE_INLINE_LAMBDA {
          multiply_row<Arch, Rows, Vectors, visit, pass, one_by_one>(
              left, 0, first, acc, kept, [&](int j, int part) HEADLANE_INLINE_LAMBDA {
                const auto* words = group[j / per_panel * b.panel_step].numbers[w] + column(j, part);
                return scale[j][part].times(words, row_of_word);
              });
          left.next(1);
        });
      }
    }
  }
}

}  // namespace
}  // namespace headlane::internal::kernels
