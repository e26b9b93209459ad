// ModelOptions: the options of T5 and Bert.
#pragma once

#include <headlane/dtype.hpp>

namespace headlane::models {

struct ModelOptions {
  /// How the weight matrices and embeddings are stored (PackedMatrix): bfloat16 and float16 take
  /// half the memory of float32, int8 a quarter. Sums are computed in float32 all the same. Norms
  /// and biases stay float32. int8 refuses weights that are not finite: std::invalid_argument.
  DType weights = DType::float32;
  /// int8: products are those of integers (GemmOptions), for weights of int8: the fastest. Each row
  /// is rounded to 8 bits by its own scale, which suits encoders and T5, and may change tokens.
  DType activations = DType::float32;
};

}  // namespace headlane::models
