// MultiHeadAttention: projections, attention, output projection. The contract of all layers:
// layers.hpp.
#pragma once

#include <headlane/attention.hpp>
#include <headlane/dtype.hpp>
#include <headlane/export.h>
#include <headlane/kv_cache.hpp>
#include <headlane/linear.hpp>
#include <headlane/packed_matrix.hpp>
#include <headlane/state_dict.hpp>
#include <headlane/team.hpp>
#include <headlane/view.hpp>

#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace headlane {

struct MultiHeadAttentionOptions {
  Index heads = 0;                            ///< required (torch: num_heads)
  Index kv_heads = 0;                         ///< a divisor of heads; 0: heads
  std::optional<float> scale = std::nullopt;  ///< of the scores; default 1 / sqrt(head_dim) (T5: 1)
  DType weights = DType::float32;             ///< how the weights are stored (PackedMatrix)
  DType activations = DType::float32;         ///< of the projections, as Linear
  Team* team = nullptr;                       ///< not owned; see layers.hpp
};

struct ProjectMemoryOptions {
  /// If given: [sequences]; rows of a batch element after the first key_lengths[s] are padding.
  View<const Index, 1> key_lengths = {};
  /// If given: [sequences + 1]; memory is one batch element that holds variable-length sequences,
  /// as in AttentionOptions.
  View<const Index, 1> key_starts = {};
  int num_threads = 0;  ///< maximum for this call; 0: num_threads() (runtime.hpp)
};

/// torch.nn.MultiheadAttention with batch_first=True.
///
/// Tensors, where inner = heads · head_dim, kv_inner = kv_heads · head_dim:
///   in_proj_weight [inner + 2 · kv_inner, d_model]: rows of q, k and v in this order;
///     or three matrices, as in torch if kv_dim, the width of memory, differs from d_model:
///     q_proj_weight [inner, d_model], k_proj_weight and v_proj_weight [kv_inner, kv_dim]
///   in_proj_bias [inner + 2 · kv_inner]
///   out_proj.weight [d_model, inner]
///   out_proj.bias [d_model]
/// head_dim follows from the shapes, 1 … max_head_dim (limits.hpp), and need not be
/// d_model / heads. bias_k and bias_v are an error: use sinks.
///
/// AttentionOptions of every forward function: scale defaults to the layer's; sum and workspace
/// are an error.
/// In bfloat16 and float16: x and memory are widened exactly, y is the result for float32 rounded
/// once, to nearest, ties to even; what caches get is that of float32, too. The tensors of the
/// options are of float32, but for the bias. Memory: scratch for float32 copies of x, memory and y,
/// of which the calling thread keeps up to 64 MiB.
///
/// With a team (layers.hpp), a rank has some of the kv heads, the query heads that share them, and
/// their keys and values: a cache has kv_heads() heads, on some ranks none. Options have the shapes
/// of all heads().
class HEADLANE_API MultiHeadAttention {
 public:
  MultiHeadAttention() = default;
  MultiHeadAttention(const StateDict& state, std::string_view prefix,
                     const MultiHeadAttentionOptions& options);

  [[nodiscard]] Index d_model() const { return out_proj_.out_features(); }
  /// The width of memory: d_model, unless keys and values have projections of their own.
  [[nodiscard]] Index kv_dim() const { return kv_dim_; }
  /// On all ranks together.
  [[nodiscard]] Index heads() const { return heads_; }
  /// Of this rank: the heads of a cache.
  [[nodiscard]] Index kv_heads() const { return shares_.own(); }
  /// The kv heads of each rank.
  [[nodiscard]] const Shares& shares() const { return shares_; }
  [[nodiscard]] Index head_dim() const { return head_dim_; }
  [[nodiscard]] std::optional<float> scale() const { return scale_; }
  /// The projection of x to the heads of this rank, transposed: [d_model, columns]. The columns of
  /// q, k and v each begin at a multiple of 32; if kv_dim differs from d_model, there is only q.
  [[nodiscard]] const PackedMatrix& in_proj() const { return in_proj_; }
  /// If kv_dim differs from d_model: the projection of memory, [kv_dim, columns of k and v].
  [[nodiscard]] const PackedMatrix& memory_proj() const { return memory_proj_; }
  /// For the same columns of q, k and v; null data if there is none. Valid as long as the layer.
  [[nodiscard]] View<const float, 1> in_proj_bias() const;
  [[nodiscard]] const Linear& out_proj() const { return out_proj_; }
  [[nodiscard]] OwnedStateDict state_dict(std::string_view prefix = {}) const;

  /// Self-attention. Queries, keys and values come from one product.
  void forward(View<const float, 3> x, View<float, 3> y,
               const AttentionOptions& options = {}) const;
  void forward(View<const bfloat16, 3> x, View<bfloat16, 3> y,
               const AttentionOptions& options = {}) const;
  void forward(View<const float16, 3> x, View<float16, 3> y,
               const AttentionOptions& options = {}) const;

  /// Cross-attention to memory [batch, memory length, kv_dim].
  void forward(View<const float, 3> x, View<const float, 3> memory, View<float, 3> y,
               const AttentionOptions& options = {}) const;
  void forward(View<const bfloat16, 3> x, View<const bfloat16, 3> memory, View<bfloat16, 3> y,
               const AttentionOptions& options = {}) const;
  void forward(View<const float16, 3> x, View<const float16, 3> memory, View<float16, 3> y,
               const AttentionOptions& options = {}) const;

  /// Self-attention over a cache (of kv_heads, head_dim, head_dim): always causal.
  ///
  /// Appends the keys and values of x, batch element b to sequence sequences[b], each named once,
  /// then attends to everything the sequence holds. With query_lengths, each sequence grows by its
  /// own length, and padding rows are not appended.
  /// Errors: as all layers; the cache is then unchanged.
  void forward(View<const float, 3> x, KvCache& cache, std::span<const Index> sequences,
               View<float, 3> y, const AttentionOptions& options = {}) const;
  void forward(View<const bfloat16, 3> x, KvCache& cache, std::span<const Index> sequences,
               View<bfloat16, 3> y, const AttentionOptions& options = {}) const;
  void forward(View<const float16, 3> x, KvCache& cache, std::span<const Index> sequences,
               View<float16, 3> y, const AttentionOptions& options = {}) const;

  /// Cross-attention to the keys and values that project_memory() wrote to a cache. Not causal.
  void forward_projected(View<const float, 3> x, const KvCache& cache,
                         std::span<const Index> sequences, View<float, 3> y,
                         const AttentionOptions& options = {}) const;
  void forward_projected(View<const bfloat16, 3> x, const KvCache& cache,
                         std::span<const Index> sequences, View<bfloat16, 3> y,
                         const AttentionOptions& options = {}) const;
  void forward_projected(View<const float16, 3> x, const KvCache& cache,
                         std::span<const Index> sequences, View<float16, 3> y,
                         const AttentionOptions& options = {}) const;

  /// Projects memory to keys and values once, for many calls of forward_projected().
  ///
  /// Appends batch element b to sequence sequences[b], in ascending order of b; a sequence may
  /// occur more than once.
  void project_memory(View<const float, 3> memory, KvCache& cache, std::span<const Index> sequences,
                      const ProjectMemoryOptions& options = {}) const;
  void project_memory(View<const bfloat16, 3> memory, KvCache& cache,
                      std::span<const Index> sequences,
                      const ProjectMemoryOptions& options = {}) const;
  void project_memory(View<const float16, 3> memory, KvCache& cache,
                      std::span<const Index> sequences,
                      const ProjectMemoryOptions& options = {}) const;

 private:
  HEADLANE_HIDDEN void read(const StateDict& state, std::string_view prefix,
                            const MultiHeadAttentionOptions& options);

  detail::Size heads_, head_dim_, kv_dim_;
  Shares shares_;
  std::optional<float> scale_;
  PackedMatrix in_proj_, memory_proj_;
  std::vector<float> in_bias_;
  Linear out_proj_;
};

}  // namespace headlane
