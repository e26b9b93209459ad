// General matrix product in binary32.
#pragma once

#include <headlane/activation_kind.hpp>
#include <headlane/export.h>
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
  /// If data is not null: [m, n], any strides; added last.
  View<const float, 2> residual = {};
  int num_threads = 0;  ///< maximum number of threads of this call; 0: num_threads() (runtime.hpp)
};

/// c = activation(alpha · a · b + beta · c + bias) + residual; without options, c = a · b.
///
/// Shapes: a [m, k], b [k, n], c [m, n]; any strides, so that a transpose is a view: `gemm(a, w.transposed(), c)`.
/// Sizes may be 0: with k = 0 the product is 0.
/// Reads: c only if beta is not 0 (a NaN in it is then overwritten); a and b only if alpha is not 0.
/// Aliasing: inputs may overlap each other; c must overlap none of them, nor itself.
/// Arithmetic: c = beta · c; then for each block of 512 along k, in order, an fma chain from 0 over the block and
///   c = fma(alpha, chain, c); at the end c + bias, activation and + residual, each rounded, as by separate calls, but while a
///   tile is at hand. The same bits for every instruction set, number of threads, stride and neighbour.
/// Error: |c - exact| <= gamma(min(k, 512) + ceil(k / 512) + 1) · (|alpha| Σ|a||b| + |beta| |c|), gamma(i) = i·u / (1 - i·u),
///   u = 2^-24, as long as nothing overflows or underflows (Higham 2002, section 3.1); before bias, activation and residual.
/// Memory: scratch is kept per thread; a call allocates nothing once warm.
/// Errors: std::invalid_argument, before anything is written, for shapes that do not match, negative sizes, null data,
///   an overlapping c, sizes that overflow; std::bad_alloc.
HEADLANE_API void gemm(View<const float, 2> a, View<const float, 2> b, View<float, 2> c,
                       const GemmOptions& options = {});

/// The same with b packed beforehand: the same bits, without the time for packing.
HEADLANE_API void gemm(View<const float, 2> a, const PackedMatrix& b, View<float, 2> c,
                       const GemmOptions& options = {});

}  // namespace headlane
