// Softmax and log-softmax over the last axis.
#pragma once

#include <headlane/view.hpp>

namespace headlane {

struct SoftmaxOptions {
  float scale = 1.0f;   ///< multiplies x first: the inverse temperature
  bool log = false;     ///< log-softmax instead
  int num_threads = 0;  ///< that this call may use; 0: num_threads() (runtime.hpp)
};

/// y[…, j] = exp(s_j - max s) / Σ_i exp(s_i - max s) with s = scale · x[…, ·]; with `log`, (s_j - max s) - log Σ.
///
/// Shapes: x and y alike, of any rank up to 8 and any strides; to work along another axis, permute it to the last place.
/// Rows of length 0 give nothing.
/// Aliasing: y may be x itself (the same data and strides); any other overlap is an error.
/// Special values, row by row, as in NumPy and PyTorch: a NaN or a +inf, or a row of -inf only, gives a row of NaN; an
///   element of -inf beside others gives 0 (log: -inf).
/// Arithmetic: s_j - max s is one fma; exp is at most 1 ULP off, and 0 below -87.68, where it is smaller than any normal
///   number; element j goes to lane j mod 16, the 16 partial sums fold 16 → 8 → 4 → 2 → 1. The same bits for every
///   instruction set, number of threads and stride.
/// Error, n the row length, u = 2^-24: |y - exact| <= (2·|s_j - max s| + ceil(n / 16) + 2·ln(n + 1) + 9) · u · y + 2^-126; with
///   `log`, (2·|s_j - max s| + |y| + ceil(n / 16) + 2·ln(n + 1) + 8) · u.
/// Source: Milakov and Gimelshein 2018 review the three-pass form used here.
/// Memory: allocates nothing once warm. Errors: std::invalid_argument before anything is written; std::bad_alloc.
void softmax(AnyView<const float> x, AnyView<float> y, const SoftmaxOptions& options = {});

}  // namespace headlane
