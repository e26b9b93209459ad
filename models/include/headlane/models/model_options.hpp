// ModelOptions: the options of T5 and Bert.
#pragma once

#include <headlane/dtype.hpp>

namespace headlane::models {

struct ModelOptions {
  /// How the weight matrices and embeddings are stored (PackedMatrix): bfloat16 and float16 take
  /// half the memory of float32, int8 a quarter. Sums are computed in float32 all the same. Norms
  /// and biases stay float32. int8 refuses weights that are not finite: std::invalid_argument.
  /// Weights that compressed-tensors quantised stay as they are, whatever this says.
  DType weights = DType::float32;
  /// Rounds the rows that weights of such a type multiply (GemmOptions). int8: products are those
  /// of integers, the fastest, which suits encoders and T5, and may change tokens. bfloat16: faster
  /// where the CPU has AVX512-BF16 (isa_extension()).
  DType activations = DType::float32;
};

}  // namespace headlane::models
