// Prefetching into the L2, along the way, what a later block reads.
#pragma once

#include "kernels/args/attention.hpp"
#include "kernels/gemm/tiling.hpp"

namespace headlane::internal::kernels {
namespace {

/// Rows that wait to be prefetched: a kernel prefetches some of them at each of `steps` places in
/// its work. Many lines at a time fill the buffers of the L1, for which its loads then wait.
class PrefetchQueue {
 public:
  HEADLANE_INLINE PrefetchQueue(const Prefetch (&prefetch)[3], Index steps) {
    Index all = 0;
    for (int i = 0; i < 3; ++i) {
      rows_[i] = prefetch[i];
      all += prefetch[i].rows;
    }
    at_once_ = steps > 1 ? (all + steps - 1) / steps : all;
    skip_finished();
  }

  [[nodiscard]] HEADLANE_INLINE bool is_empty() const { return first_ == 3; }

  HEADLANE_INLINE void prefetch_some() {
    for (Index n = at_once_; n > 0 && !is_empty(); --n) {
      Prefetch& f = rows_[first_];
      for (Index line = 0; line < f.row_lines; ++line) __builtin_prefetch(f.data + line * lanes, 0, 2);
      if (--f.rows > 0) f.data += f.row_step;  // a step beyond the last row may be any number
      else skip_finished();
    }
  }

 private:
  HEADLANE_INLINE void skip_finished() {
    while (!is_empty() && rows_[first_].rows == 0) ++first_;
  }

  Prefetch rows_[3];
  int first_ = 0;  // of rows_ with a row left
  Index at_once_;
};

/// Rows of b between two steps of a product: 16 take a tile of 12 × 32 192 cycles (Emerald Rapids,
/// 64 sequences of 128: 36.4 us a head; with a step before each product 37.5). Smaller tiles are so
/// many that they take a step each; with AVX2, steps within them made 32 tokens 10 % slower.
template <class Arch>
inline constexpr Index rows_between_steps = Tile<Arch>::vectors > 1 ? 16 : block_size;

/// Steps of a product of k rows of b.
template <class Arch>
constexpr Index prefetch_steps(Index k) {
  return (k + rows_between_steps<Arch> - 1) / rows_between_steps<Arch>;
}

/// multiply(), with steps of a queue along the way.
template <class Arch, int Rows, int Vectors, class Left>
HEADLANE_INLINE void multiply_prefetching(Index k, const Left& a, const Panels& b, PrefetchQueue& queue,
                                          Accumulators<Arch, Rows, Vectors>& acc) {
  if (queue.is_empty()) return multiply<Arch, Rows, Vectors>(k, a, b, acc);
  Left left = a;
  Panels right = b;
  while (k > 0) {
    const Index count = k < rows_between_steps<Arch> ? k : rows_between_steps<Arch>;
    queue.prefetch_some();
    multiply<Arch, Rows, Vectors>(count, left, right, acc);
    left.next(static_cast<int>(count));
    right.data += count * right.row_step;
    k -= count;
  }
}

}  // namespace
}  // namespace headlane::internal::kernels
