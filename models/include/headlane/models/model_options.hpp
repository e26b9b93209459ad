// ModelOptions: the options of T5 and Bert.
#pragma once

#include <headlane/dtype.hpp>
#include <headlane/team.hpp>

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
  /// If given: this is one rank's part of a model that several processes run together (layers.hpp);
  /// not owned, and must outlive the model. Of the weight matrices and the embedding of words, a
  /// rank reads and holds its share; weights that are quantised are read whole, one at a time. The
  /// results are those of one process, bit by bit, on every rank.
  /// Constructing a model and its functions that compute are collective: each rank calls them with
  /// the same arguments but for num_threads and progress. They begin with Team::agree(): ranks with
  /// other versions, files, options or inputs all get the same std::invalid_argument. If a rank
  /// cannot load the model, all ranks throw. A `progress` that throws must do so on every rank.
  Team* team = nullptr;
};

}  // namespace headlane::models
