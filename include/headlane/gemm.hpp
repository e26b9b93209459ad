// General matrix product in single precision.
#pragma once

#include <headlane/activation_kind.hpp>
#include <headlane/export.h>
#include <headlane/floating_view.hpp>
#include <headlane/packed_matrix.hpp>
#include <headlane/view.hpp>

namespace headlane {

struct GemmOptions {
  float alpha = 1.0f;
  float beta = 0.0f;
  /// If data is not null: [n], any stride; added to each row.
  View<const float, 1> bias = {};
  /// Applied after the bias (activation_kind.hpp).
  Activation activation = Activation::none;
  /// If data is not null: [m, n], any strides; added last. One of bfloat16 or float16 is widened
  /// exactly, whatever the types of a, b and c: a copy in float32, for which the calling thread
  /// keeps up to 64 MiB.
  FloatingView<2> residual = {};
  /// bfloat16, int8: rows of a are rounded for the product, which then is one of bfloat16 or of
  /// integers; b is a PackedMatrix of the same type or, for int8, of int8_group32 or int4_group32.
  DType activations = DType::float32;
  int num_threads = 0;  ///< maximum number of threads of this call; 0: num_threads() (runtime.hpp)
};

/// c = activation(alpha · a · b + beta · c + bias) + residual; without options, c = a · b.
///
/// Shapes: any strides, so that a transpose is a view: `gemm(a, w.transposed(), c)`.
///     a  [m, k]
///     b  [k, n]
///     c  [m, n]
///   Sizes may be 0; with k = 0 the product is 0.
/// Reads: c only if beta is not 0, so that otherwise a NaN in c is overwritten; a and b only if
///   alpha is not 0.
/// Aliasing: inputs may overlap each other; c must overlap none of them, nor itself.
/// Arithmetic: each element of c is computed as
///     c = beta · c
///     for each block of 512 along k, in order:
///       for each 128 elements p of the block, in order:
///         chain = fma(a[i, p], b[p, j], chain) for each p, from chain = 0
///         sum = chain, and from the second chain on sum + chain
///       c = fma(alpha, sum, c)
///     c = activation(c + bias) + residual
///   where bias, activation and residual are each rounded as by separate calls, although they are
///   applied to a tile that is still in the cache. The bits are the same for every instruction set,
///   number of threads, stride and neighbouring element.
/// Error: before bias, activation and residual, and unless something overflows or underflows,
///     |c - exact| <= G · (|alpha| Σ|a||b| + |beta| |c|)
///     G = gamma(max(1, min(k, 128) + min(ceil(k / 128), 4) + ceil(k / 512)))
///     gamma(i) = i·u / (1 - i·u), u = 2^-24
/// Arithmetic with activations = int8, where b[p, j] = q_b[p, j] · scale_b[j] (packed_matrix.hpp):
///     o = the first p of the largest a[i, p], or of the smallest if that has the larger magnitude:
///       the row's outlier, which is not quantised
///     centre = max a[i, p] / 2 + min a[i, p] / 2    of the others, 0 if there are none
///     distance = max |a[i, p] - centre|             of the others
///     q_a[p] = rint((a[i, p] - centre) · (127 / distance))      ties to even; q_a[o] = 0
///     sum = Σ q_a[p] · q_b[p, j], sum_b = Σ q_b[p, j]           exact, in 32 bits
///     others = fma(centre, float(sum_b), float(sum) · (distance / 127))
///     product = fma(a[i, o] - centre, q_b[o, j], others) · scale_b[j]
///     c = activation(fma(alpha, product, beta · c) + bias) + residual
///   each operation rounded once. A row with an element that is not finite counts as NaN; where
///   distance is below 2^-100, the others count as the centre. A row of c depends on that row of a
///   alone. For b in groups of 32 along k, in blocks of 512 as above:
///     sum = fma(float(Σ q_a[p] · q_b[p, j] of the group), scale_b[group, j], sum), from sum = 0
///     others = fma(centre, sum_b, sum · (distance / 127))
///     c = fma(alpha, fma(a[i, o] - centre, b[o, j], others), c)
///   where sum_b = sum_b + float(Σ q_b[p, j] of the group) · scale_b[group, j], from 0, for all
///   groups in order; a[i, o] - centre counts as 0 in the blocks that do not have it, centre in
///   those after the first.
/// Error with activations = int8: before bias, activation and residual, and unless something
///   overflows,
///     |c - exact| <= |alpha| (E + gamma(5) (|product| + 2 F)) + u (|beta c| + |c|)
///     E = distance / 254 · 1.0001 · Σ|b|, F = |centre Σb| + |(a[i, o] - centre) b[o, j]|
///   where exact is that of gemm over the unpacked b; in groups,
///     |c - exact| <= |alpha| (E + G · (Σ|a||b| + |centre| Σ|b| + E) + H · |centre| Σ|b|)
///                    + G · |beta c|
///     G = gamma(min(ceil(k / 32), 16) + ceil(k / 512) + 4)
///     H = gamma(ceil(k / 32) + ceil(k / 512) + 1)
/// Arithmetic with activations = bfloat16: rows of a are rounded to bfloat16, to nearest, ties to
///   even; an odd k counts as one more, of zeros. In each block, for pairs of p, in order,
///     sum = fma(a[i, p], b[p, j], fma(a[i, p + 1], b[p + 1, j], sum)), from sum = 0
///   with denormal operands and results as 0, where a result is denormal if it is after rounding to
///   24 bits: VDPBF16PS of AVX512-BF16, on every instruction set. The rest is as above.
/// Error with activations = bfloat16: before bias, activation and residual, unless something
///   overflows or underflows, where exact is that of gemm over the unpacked b,
///     |c - exact| <= (2^-8 + G · (1 + 2^-8)) |alpha| Σ|a||b| + G · |beta| |c|
///     G = gamma(min(k, 512) + ceil(k / 512))
/// Memory: scratch is kept per thread; a call allocates nothing once warm.
/// Errors: std::invalid_argument, before anything is written, for shapes that do not match,
///   negative sizes, null data, an overlapping c, sizes that overflow; for activations other than
///   float32 if b is not a PackedMatrix of such a type, or of int8 with more than 132000 rows;
///   std::bad_alloc.
/// Source: the error bound is that of Higham 2002, section 3.1; a scale and an offset: Jacob
///   et al. 2018, Quantization and Training of Neural Networks for Efficient
///   Integer-Arithmetic-Only Inference; outliers apart, there for columns of all rows: Dettmers et
///   al. 2022, LLM.int8().
HEADLANE_API void gemm(View<const float, 2> a, View<const float, 2> b, View<float, 2> c,
                       const GemmOptions& options = {});

/// The same with b packed beforehand: the same bits, without the time for packing.
HEADLANE_API void gemm(View<const float, 2> a, const PackedMatrix& b, View<float, 2> c,
                       const GemmOptions& options = {});

/// The same in bfloat16 and float16: a, b and c are widened exactly, c is the result for float32
/// rounded once, to nearest, ties to even. A PackedMatrix may be of any type. The bias is of
/// float32.
/// Memory: scratch for float32 copies of b, unless it is packed, and of some rows of a and c, 8 MiB
///   or 256 rows. The calling thread keeps up to 64 MiB of it.
HEADLANE_API void gemm(View<const bfloat16, 2> a, View<const bfloat16, 2> b, View<bfloat16, 2> c,
                       const GemmOptions& options = {});
HEADLANE_API void gemm(View<const float16, 2> a, View<const float16, 2> b, View<float16, 2> c,
                       const GemmOptions& options = {});
HEADLANE_API void gemm(View<const bfloat16, 2> a, const PackedMatrix& b, View<bfloat16, 2> c,
                       const GemmOptions& options = {});
HEADLANE_API void gemm(View<const float16, 2> a, const PackedMatrix& b, View<float16, 2> c,
                       const GemmOptions& options = {});

}  // namespace headlane
