// Embedding: a table of vectors, also usable as the output layer. The contract of all layers:
//   layers.hpp.
#pragma once

#include <headlane/dtype.hpp>
#include <headlane/export.h>
#include <headlane/packed_matrix.hpp>
#include <headlane/state_dict.hpp>
#include <headlane/team.hpp>
#include <headlane/view.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace headlane {

namespace internal {
struct HalfRows;
struct Operand;
class StateDictReader;
}  // namespace internal

struct EmbeddingOptions {
  /// The output layer shares the weight (logits()): it is stored once, as a PackedMatrix.
  bool tied = false;
  /// Maximum number of tokens in a sequence; 0: unlimited.
  Index max_length = 0;
  /// How the table is stored; int8 has a scale for each vector.
  DType weights = DType::float32;
  /// How logits() rounds its rows, as in Linear; float32 if not tied.
  DType activations = DType::float32;
  Team* team = nullptr;  ///< cuts the vectors, and the columns of logits(), over its ranks
};

struct EmbeddingForwardOptions {
  float scale = 1.0f;  ///< multiplies the vectors: sqrt(d_model) in Vaswani et al. 2017
  bool add = false;    ///< accumulates: y = y + vector · scale, each operation rounded
  /// Drops the tokens after the first max_length; otherwise they are an error.
  bool truncate = false;
};

/// torch.nn.Embedding.
///
/// Tensor: weight [num_embeddings, embedding_dim].
class HEADLANE_API Embedding {
 public:
  Embedding() = default;
  explicit Embedding(const StateDict& state, std::string_view prefix = {},
                     const EmbeddingOptions& options = {});

  [[nodiscard]] Index num_embeddings() const { return rows_.count(); }
  [[nodiscard]] Index embedding_dim() const { return columns_; }
  /// The ids whose vectors each rank has.
  [[nodiscard]] const Shares& rows() const { return rows_; }
  /// Memory of the vectors of this rank, in bytes.
  [[nodiscard]] std::size_t bytes() const {
    return packed_.bytes() + table_.size() * sizeof(float);
  }
  [[nodiscard]] OwnedStateDict state_dict(std::string_view prefix = {}) const;

  /// y = the vectors of the ids, times scale.
  ///
  /// Shapes: ids [batch, length], y [batch, length, embedding_dim]. With truncate, the length of
  ///   y is at most max_length.
  /// Errors: an id outside 0 … num_embeddings-1; the message names its position.
  void forward(View<const Index, 2> ids, View<float, 3> y,
               const EmbeddingForwardOptions& options = {}) const;
  /// In bfloat16 and float16: y is the result for float32 rounded once, to nearest, ties to even;
  /// with `add`, that of y as it was, widened exactly.
  /// Memory: scratch for a float32 copy of y, of which the calling thread keeps up to 64 MiB.
  void forward(View<const Index, 2> ids, View<bfloat16, 3> y,
               const EmbeddingForwardOptions& options = {}) const;
  void forward(View<const Index, 2> ids, View<float16, 3> y,
               const EmbeddingForwardOptions& options = {}) const;

  /// y = x · weightᵀ; requires EmbeddingOptions::tied.
  ///
  /// Shapes: x [batch, length, embedding_dim], y [batch, length, num_embeddings].
  /// Aliasing: y must not overlap x.
  void logits(View<const float, 3> x, View<float, 3> y, int num_threads = 0) const;
  /// In bfloat16 and float16, as Linear.
  void logits(View<const bfloat16, 3> x, View<bfloat16, 3> y, int num_threads = 0) const;
  void logits(View<const float16, 3> x, View<float16, 3> y, int num_threads = 0) const;

 private:
  [[nodiscard]] bool is_packed() const {
    return options_.tied || options_.weights != DType::float32;
  }

  HEADLANE_HIDDEN void read(const StateDict& state, std::string_view prefix);
  HEADLANE_HIDDEN void read_table(const internal::StateDictReader& tensors);
  /// Copies the vector of an id of this rank.
  HEADLANE_HIDDEN void look_up(Index id, float* to) const;
  /// Checks a lookup on all ranks; returns the number of tokens of each sequence.
  HEADLANE_HIDDEN Index checked_together(const View<const Index, 2>& ids,
                                         const internal::Operand& y, DType type,
                                         const EmbeddingForwardOptions& options) const;
  HEADLANE_HIDDEN void forward_together(const View<const Index, 2>& ids, const View<float, 3>& y,
                                        const EmbeddingForwardOptions& options) const;
  HEADLANE_HIDDEN void forward_halves(const View<const Index, 2>& ids,
                                      const View<std::uint16_t, 3>& y, DType type,
                                      const EmbeddingForwardOptions& options) const;
  HEADLANE_HIDDEN void check_logits(const internal::Operand& x, const internal::Operand& y,
                                    DType type, int num_threads) const;
  HEADLANE_HIDDEN void logits_halves(const internal::HalfRows& rows, int num_threads) const;

  Shares rows_;
  detail::Size columns_;
  EmbeddingOptions options_;
  std::vector<float> table_;  // if float32 and not tied: the rows of this rank
  PackedMatrix packed_;       // otherwise: its columns of [embedding_dim, num_embeddings]
};

}  // namespace headlane
