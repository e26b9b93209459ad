// Many matrix products in one call: batches of equal sizes, and lists of products of any sizes.
#pragma once

#include <headlane/export.h>
#include <headlane/gemm.hpp>

#include <span>

namespace headlane {

/// As GemmOptions, for each product of a batch its own; a stride of 0 along the batch shares one.
struct GemmBatchOptions {
  float alpha = 1.0f;
  float beta = 0.0f;
  /// If data is not null: [batch, n], any strides.
  View<const float, 2> bias = {};
  Activation activation = Activation::none;
  /// If data is not null: [batch, m, n], any strides.
  View<const float, 3> residual = {};
  int num_threads = 0;  ///< maximum number of threads of this call; 0: num_threads() (runtime.hpp)
};

/// c[i] = activation(alpha · a[i] · b[i] + beta · c[i] + bias[i]) + residual[i] for each i of the batch.
///
/// Shapes: a [batch, m, k], b [batch, k, n], c [batch, m, n]; any strides. One operand for all products has the stride 0:
///   `gemm_batch(a, w.broadcast(0, batch), c)`. Everything that is an output is shared out to the threads: products, rows and columns.
/// Arithmetic, reads, aliasing, memory and errors: as gemm (gemm.hpp), with the bits of a call for each product.
HEADLANE_API void gemm_batch(View<const float, 3> a, View<const float, 3> b, View<float, 3> c,
                             const GemmBatchOptions& options = {});

/// The same with one packed b for all: a linear layer on [batch, length, in].
HEADLANE_API void gemm_batch(View<const float, 3> a, const PackedMatrix& b, View<float, 3> c,
                             const GemmBatchOptions& options = {});

/// One product of a list.
struct GemmProblem {
  View<const float, 2> a;
  View<const float, 2> b;                ///< not looked at if `packed` is given
  const PackedMatrix* packed = nullptr;  ///< if not null, the right operand
  View<float, 2> c;
  GemmOptions options = {};  ///< num_threads is not looked at: the call has one
};

/// Every product of a list, as gemm computes it; sizes may differ (the experts of a mixture, the sentences of a ragged batch).
/// All problems are checked before anything is written; no c may overlap any operand of any problem. Messages number them from 0.
HEADLANE_API void gemm_batch(std::span<const GemmProblem> problems, int num_threads = 0);

}  // namespace headlane
