// Softmax and log-softmax along any axis, of all elements or of those that a mask, a bias, lengths or causality leave.
#pragma once

#include <headlane/export.h>
#include <headlane/view.hpp>

namespace headlane {

struct SoftmaxOptions {
  float scale = 1.0f;  ///< multiplies x first: the inverse temperature
  bool log = false;    ///< log-softmax instead
  int axis = -1;       ///< the axis of the softmax; a negative one counts from the last
  /// If data is not null: shape as x, any strides, 0 to broadcast; only elements that are true take part.
  AnyView<const bool> mask = {};
  /// If data is not null: as mask; added to scale · x. An element with a bias of -inf does not take part.
  AnyView<const float> bias = {};
  /// If data is not null: x's shape without the axis, any strides, 0 to broadcast; of each row, elements from this one on do not
  /// take part: padding, of which x, mask and bias are not read. 0 … n, n the size of the axis.
  AnyView<const Index> lengths = {};
  /// x is [..., queries, keys], the axis its last one: element j of row i takes part only if j <= i + causal_offset.
  bool causal = false;
  Index causal_offset = 0;  ///< any; negative: the first rows have no element
  int num_threads = 0;      ///< maximum number of threads of this call; 0: num_threads() (runtime.hpp)
};

/// y_j = exp(s_j - max s) / Σ_i exp(s_i - max s) along the axis, s = scale · x + bias; with `log`, (s_j - max s) - log Σ.
///
/// Shapes: x and y alike, of any rank from 1 to 8 and any strides. An axis of length 0 gives nothing.
/// Aliasing: y may be x itself (the same data and strides); any other overlap is an error, with mask, bias and lengths too.
/// Elements that do not take part (mask, bias, lengths, causal, all combining) give 0 (log: -inf) and have no influence, NaN or
///   not.
/// Special values, row by row, as in NumPy and PyTorch: a NaN or a +inf, or a row of -inf only, gives a row of NaN; an
///   element of -inf beside others gives 0 (log: -inf). With mask, bias, lengths or causal, as in attention: NaN for the elements
///   that take part, and 0 (log: -inf) for a row in which no element does, or only elements of -inf.
/// Arithmetic: s_j - max s is one fma, with a bias after s_j = fma(scale, x_j, bias_j); exp is at most 1 ULP off, and 0 below
///   -87.68, where it is smaller than any normal number; element j goes to lane j mod 16, the 16 partial sums fold 16 → 8 → 4 → 2 →
///   1. The same bits for every instruction set, number of threads, stride and axis; elements that do not take part count as scores
///   of -inf, so that without a bias a row in which all do has the bits of plain softmax.
/// Error, n the row length, u = 2^-24: |y - exact| <= (2·|s_j - max s| + ceil(n / 16) + 2·ln(n + 1) + 9) · u · y + 2^-126; with
///   `log`, (2·|s_j - max s| + |y| + ceil(n / 16) + 2·ln(n + 1) + 8) · u. With a bias each s_i is rounded, at most by
///   (|max s| + |s_i - max s|) · u: its own and the weighted mean of all add 2·|max s| + |s_j - max s| + ln(n + 1) to either
///   bracket (to first order in u).
/// Source: Milakov and Gimelshein 2018 review the three-pass form used here.
/// Memory: allocates nothing once warm; scratch of 16 rows a thread where an axis is not contiguous. Errors:
///   std::invalid_argument before anything is written; std::bad_alloc.
HEADLANE_API void softmax(AnyView<const float> x, AnyView<float> y, const SoftmaxOptions& options = {});

}  // namespace headlane
