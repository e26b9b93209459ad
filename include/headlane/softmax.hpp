// Softmax and log-softmax along any axis, optionally masked by a mask, a bias, lengths or
// causality.
#pragma once

#include <headlane/dtype.hpp>
#include <headlane/export.h>
#include <headlane/floating_view.hpp>
#include <headlane/view.hpp>

namespace headlane {

struct SoftmaxOptions {
  float scale = 1.0f;  ///< multiplies x: the inverse temperature
  bool log = false;    ///< log-softmax instead of softmax
  int axis = -1;       ///< the axis of the softmax; a negative one counts from the last
  /// If data is not null: shape as x, any strides, 0 to broadcast; false masks an element.
  AnyView<const bool> mask = {};
  /// If data is not null: as mask; added to scale · x. A bias of -inf masks an element. One of
  /// bfloat16 or float16 is widened exactly, padding included, whatever the type of x: a copy in
  /// float32, for which the calling thread keeps up to 64 MiB.
  AnyFloatingView bias = {};
  /// If data is not null: x's shape without the axis, any strides, 0 to broadcast; values 0 … n, n
  /// the size of the axis. In each row the elements from this one on are padding: masked, and x,
  /// mask and bias are not read there.
  AnyView<const Index> lengths = {};
  /// x is [..., queries, keys], the axis is the last one: element j of row i is masked if
  /// j > i + causal_offset.
  bool causal = false;
  Index causal_offset = 0;  ///< any; if negative, the first rows are masked altogether
  int num_threads = 0;  ///< maximum number of threads of this call; 0: num_threads() (runtime.hpp)
};

/// y_j = exp(s_j - max s) / Σ_i exp(s_i - max s) along the axis, with s = scale · x + bias; with
/// `log`, y_j = (s_j - max s) - log Σ_i exp(s_i - max s).
///
/// Shapes: x and y have the same shape, of any rank from 1 to 8, and any strides. With an axis of
///   length 0 nothing is written.
/// Aliasing: y may be x itself (the same data and strides); any other overlap is an error,
///   including mask, bias and lengths.
/// Masked elements: mask, bias, lengths and causal combine. A masked element returns 0 (log: -inf)
///   and has no influence, NaN or not.
/// Special values: they affect only their own row, as in NumPy and PyTorch. A NaN, a +inf, or a row
///   of -inf only makes the row NaN; an element of -inf beside others returns 0 (log: -inf). With
///   mask, bias, lengths or causal it is as in attention: only the elements that are not masked
///   become NaN, and a row in which all elements are masked or -inf returns 0 (log: -inf).
/// Arithmetic: s_j - max s is one fma; if |max s| >= 2^26 and the scale is not 1, the largest of
///   these differences, which is the rounding of max s, is then subtracted from all. With a bias,
///   s_j = fma(scale, x_j, bias_j) comes first, and the scale is 1 from there on. exp is at most
///   1 ULP off, and 0 below -87.3365, where it is less than any normal number. Element j is added
///   to partial sum j mod 16, and the partial sums fold 16 → 8 → 4 → 2 → 1. The bits are the same
///   for every instruction set, number of threads, stride and axis. Masked elements count as scores
///   of -inf, so that without a bias a row without masked elements has the bits of plain softmax.
/// Error: with n the row length and u = 2^-24,
///     |y - exact| <= (2·|s_j - max s| + ceil(n / 16) + 2·ln(n + 1) + 9) · u · y + 2^-126
///   and with `log`
///     |y - exact| <= (2·|s_j - max s| + |y| + ceil(n / 16) + 2·ln(n + 1) + 8) · u
///   With a bias each s_i is rounded, by at most (|max s| + |s_i - max s|) · u. Its own rounding
///   and the weighted mean of all add 2·|max s| + |s_j - max s| + ln(n + 1) to the parenthesis of
///   either bound, to first order in u.
/// Memory: a call allocates nothing once warm; scratch of 16 rows a thread where the axis is not
///   contiguous.
/// Errors: std::invalid_argument before anything is written; std::bad_alloc.
/// Source: Milakov and Gimelshein 2018 review the three-pass form used here.
HEADLANE_API void softmax(AnyView<const float> x, AnyView<float> y,
                          const SoftmaxOptions& options = {});

/// The same in bfloat16 and float16: x is widened exactly, y is the result for float32 rounded
/// once, to nearest, ties to even.
/// Memory: scratch of 32 KiB or one row a thread, if that is more; with rows that are not
///   contiguous 32 of them; as much for a bias of 16 bits. Each thread keeps it, so that a warm
///   call allocates nothing.
HEADLANE_API void softmax(AnyView<const bfloat16> x, AnyView<bfloat16> y,
                          const SoftmaxOptions& options = {});
HEADLANE_API void softmax(AnyView<const float16> x, AnyView<float16> y,
                          const SoftmaxOptions& options = {});
}  // namespace headlane
