// Many matrix products in one call: batches of equal sizes, and lists of products of any sizes.
#pragma once

#include <headlane/export.h>
#include <headlane/gemm.hpp>

#include <span>

namespace headlane {

/// As GemmOptions, with a bias and a residual for each product; a stride of 0 along the batch
/// shares one.
struct GemmBatchOptions {
  float alpha = 1.0f;
  float beta = 0.0f;
  /// If data is not null: [batch, n], any strides.
  View<const float, 2> bias = {};
  Activation activation = Activation::none;
  /// If data is not null: [batch, m, n], any strides; of any type as in GemmOptions.
  FloatingView<3> residual = {};
  DType activations = DType::float32;  ///< as GemmOptions
  int num_threads = 0;  ///< maximum number of threads of this call; 0: num_threads() (runtime.hpp)
};

/// c[i] = activation(alpha · a[i] · b[i] + beta · c[i] + bias[i]) + residual[i] for each i of the
/// batch.
///
/// Shapes: any strides; a stride of 0 along the batch shares an operand between all products:
///   `gemm_batch(a, w.broadcast(0, batch), c)`.
///     a  [batch, m, k]
///     b  [batch, k, n]
///     c  [batch, m, n]
/// Threads: they share products, rows and columns, whichever of them are many.
/// Arithmetic: as gemm (gemm.hpp), with the bits of a call for each product. Reads, aliasing,
///   error, memory and errors as there.
HEADLANE_API void gemm_batch(View<const float, 3> a, View<const float, 3> b, View<float, 3> c,
                             const GemmBatchOptions& options = {});

/// The same with one packed b for all products: a linear layer on [batch, length, in].
HEADLANE_API void gemm_batch(View<const float, 3> a, const PackedMatrix& b, View<float, 3> c,
                             const GemmBatchOptions& options = {});

/// The same in bfloat16 and float16, with the bits of gemm (gemm.hpp) for each product.
/// Memory: scratch for float32 copies of a, b, unless it is packed, and c; the calling thread keeps
///   up to 64 MiB of it.
HEADLANE_API void gemm_batch(View<const bfloat16, 3> a, View<const bfloat16, 3> b,
                             View<bfloat16, 3> c, const GemmBatchOptions& options = {});
HEADLANE_API void gemm_batch(View<const float16, 3> a, View<const float16, 3> b, View<float16, 3> c,
                             const GemmBatchOptions& options = {});
HEADLANE_API void gemm_batch(View<const bfloat16, 3> a, const PackedMatrix& b, View<bfloat16, 3> c,
                             const GemmBatchOptions& options = {});
HEADLANE_API void gemm_batch(View<const float16, 3> a, const PackedMatrix& b, View<float16, 3> c,
                             const GemmBatchOptions& options = {});

/// One product of a list, in float, bfloat16 or float16.
template <class T>
struct GemmProblemOf {
  View<const T, 2> a;
  View<const T, 2> b;                    ///< ignored if `packed` is given
  const PackedMatrix* packed = nullptr;  ///< if not null, the right operand
  View<T, 2> c;
  GemmOptions options = {};  ///< num_threads is ignored: the call has its own
};
/// A product in float32.
using GemmProblem = GemmProblemOf<float>;

/// Computes every product of a list as gemm does. Sizes may differ: the experts of a mixture, the
/// sequences of a variable-length batch.
///
/// Aliasing: no c may overlap any operand of any problem, as require_disjoint() sees it
///   (disjoint.hpp).
/// Errors: as gemm. All problems are checked before anything is written; messages number them
///   from 0.
HEADLANE_API void gemm_batch(std::span<const GemmProblem> problems, int num_threads = 0);
/// In bfloat16 and float16, as gemm_batch of these types. Memory: scratch for float32 copies of all
///   operands.
HEADLANE_API void gemm_batch(std::span<const GemmProblemOf<bfloat16>> problems,
                             int num_threads = 0);
HEADLANE_API void gemm_batch(std::span<const GemmProblemOf<float16>> problems, int num_threads = 0);

}  // namespace headlane
