// Layers of a transformer, made of the functions of this library: their weights are packed once.
//
// Weights. A layer is made from a state dict with the names and layouts of the module of torch.nn that it is called after, looks up
//   prefix + name ("encoder.layers.0." + "linear1.weight"), and copies what it needs. A bias that is not there is none. Numbers of heads and the like,
//   which no tensor tells, are options. Errors: std::invalid_argument, which names the tensor and the shapes; std::bad_alloc.
//   A layer that was default-constructed or moved from takes rows of 0 elements, which means that it refuses all others.
//   state_dict() returns these tensors again, bit by bit, each name behind the prefix: from them and the same options a layer
//   is made that computes the same bits.
// Forward. x and y are [batch, length, d_model] with any strides; y may be x itself (the same data and strides), other overlaps are an error.
//   Padding is given as lengths, masks or a ragged batch in AttentionOptions (attention.hpp), whose options all work: shapes of the layer's heads.
//   forward() is const, and any number of threads may call it at the same time. It allocates nothing once warm: scratch is kept per thread.
//   Errors: std::invalid_argument before anything is written; std::bad_alloc.
// Arithmetic: that of gemm, attention, layer_norm and so on, each rounded as by itself, so the same bits for every instruction set, number
//   of threads, batch and padding.
#pragma once

#include <headlane/activation_kind.hpp>
#include <headlane/attention.hpp>
#include <headlane/export.h>
#include <headlane/kv_cache.hpp>
#include <headlane/packed_matrix.hpp>
#include <headlane/state_dict.hpp>
#include <headlane/view.hpp>

#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace headlane {
namespace internal {
class LayerCalls;
}

struct LinearOptions {
  Activation activation = Activation::none;  ///< applied after the bias
  View<const float, 3> residual = {};        ///< if data is not null: shape as y, any strides; added last
  int num_threads = 0;                       ///< maximum number of threads of this call; 0: num_threads() (runtime.hpp)
};

/// torch.nn.Linear. Tensors: weight [out_features, in_features], bias [out_features].
class HEADLANE_API Linear {
 public:
  Linear() = default;
  explicit Linear(const StateDict& state, std::string_view prefix = {});

  [[nodiscard]] Index in_features() const { return weight_.rows(); }
  [[nodiscard]] Index out_features() const { return weight_.columns(); }
  [[nodiscard]] OwnedStateDict state_dict(std::string_view prefix = {}) const;

  /// y = activation(x · weightᵀ + bias) + residual: x [batch, length, in_features], y [batch, length, out_features]. y overlaps nothing.
  void forward(View<const float, 3> x, View<float, 3> y, const LinearOptions& options = {}) const;

 private:
  friend class internal::LayerCalls;
  PackedMatrix weight_;
  std::vector<float> bias_;
};

enum class NormKind { layer, rms };

/// torch.nn.LayerNorm or torch.nn.RMSNorm over the last axis (norm.hpp). Tensors: weight [d], and of layer norm bias [d].
class HEADLANE_API Normalization {
 public:
  Normalization() = default;
  Normalization(const StateDict& state, std::string_view prefix, NormKind kind, float eps);

  [[nodiscard]] Index size() const { return static_cast<Index>(weight_.size()); }
  [[nodiscard]] OwnedStateDict state_dict(std::string_view prefix = {}) const;

  /// y = norm(x), of any rank.
  void forward(AnyView<const float> x, AnyView<float> y, int num_threads = 0) const;

 private:
  NormKind kind_ = NormKind::layer;
  float eps_ = 0;
  std::vector<float> weight_, bias_;
};

struct EmbeddingOptions {
  /// The weight is the output layer's as well (logits()): kept once, in the order of a PackedMatrix.
  bool tied = false;
  /// Tokens that a sequence may have; 0: any number.
  Index max_length = 0;
};

struct EmbeddingForwardOptions {
  float scale = 1.0f;  ///< multiplies the vectors: sqrt(d_model) in Vaswani et al. 2017
  bool add = false;  ///< y + vector · scale, both rounded, instead of vector · scale: for the sum of several embeddings
  bool truncate = false;  ///< of longer sequences the first max_length tokens, instead of an error
};

/// torch.nn.Embedding. Tensor: weight [num_embeddings, embedding_dim].
class HEADLANE_API Embedding {
 public:
  Embedding() = default;
  explicit Embedding(const StateDict& state, std::string_view prefix = {}, const EmbeddingOptions& options = {});

  [[nodiscard]] Index num_embeddings() const { return rows_; }
  [[nodiscard]] Index embedding_dim() const { return columns_; }
  [[nodiscard]] OwnedStateDict state_dict(std::string_view prefix = {}) const;

  /// ids [batch, length], y [batch, length, embedding_dim]; with truncate, for longer sequences, [batch, max_length, embedding_dim].
  /// An id that is not 0 … num_embeddings-1 is an error, which names its place.
  void forward(View<const Index, 2> ids, View<float, 3> y, const EmbeddingForwardOptions& options = {}) const;

  /// y = x · weightᵀ, [batch, length, num_embeddings]. Only of a tied one. y overlaps nothing.
  void logits(View<const float, 3> x, View<float, 3> y, int num_threads = 0) const;

 private:
  detail::Size rows_, columns_;
  EmbeddingOptions options_;
  std::vector<float> table_;  // not tied
  PackedMatrix packed_;       // tied: [embedding_dim, num_embeddings]
};

struct MultiHeadAttentionOptions {
  Index heads = 0;                            ///< must be given (torch: num_heads)
  Index kv_heads = 0;                         ///< that keys and values have, a divisor of heads; 0: heads
  std::optional<float> scale = std::nullopt;  ///< of the scores; 1 / sqrt(head_dim) if absent (T5: 1)
};

struct RememberOptions {
  /// If data is not null: [sequences]; of each batch element the first so many rows, the others are padding.
  View<const Index, 1> key_lengths = {};
  /// If data is not null: [sequences + 1]; memory is a ragged batch (AttentionOptions), with one batch element.
  View<const Index, 1> key_starts = {};
  int num_threads = 0;  ///< maximum number of threads of this call; 0: num_threads() (runtime.hpp)
};

/// torch.nn.MultiheadAttention, batch first. Tensors: in_proj_weight [(heads + 2 · kv_heads) · head_dim, d_model], in the order q, k, v, or
/// three of them, as torch has it where memory is of another width: q_proj_weight [heads · head_dim, d_model],
/// k_proj_weight and v_proj_weight [kv_heads · head_dim, memory's width]; in_proj_bias as in_proj_weight; out_proj.weight [d_model, heads · head_dim];
/// out_proj.bias. head_dim is what the shapes say, 1 … 512, and need not be d_model / heads. bias_k and bias_v are an error: use sinks.
/// For all overloads: of AttentionOptions, scale is the layer's if absent, and sum and workspace are an error.
class HEADLANE_API MultiHeadAttention {
 public:
  MultiHeadAttention() = default;
  MultiHeadAttention(const StateDict& state, std::string_view prefix, const MultiHeadAttentionOptions& options);

  [[nodiscard]] Index d_model() const { return out_proj_.out_features(); }
  [[nodiscard]] Index heads() const { return heads_; }
  [[nodiscard]] Index kv_heads() const { return kv_heads_; }
  [[nodiscard]] Index head_dim() const { return head_dim_; }
  [[nodiscard]] OwnedStateDict state_dict(std::string_view prefix = {}) const;

  /// Self-attention: queries, keys and values of x in one product.
  void forward(View<const float, 3> x, View<float, 3> y, const AttentionOptions& options = {}) const;
  /// Cross-attention: keys and values of memory [batch, memory's length, memory's width].
  void forward(View<const float, 3> x, View<const float, 3> memory, View<float, 3> y,
               const AttentionOptions& options = {}) const;
  /// Self-attention over all that a cache (of kv_heads, head_dim, head_dim) holds: appends the keys and values of x, batch element b to sequence
  /// sequences[b], then attends, causal whatever options say. With query_lengths, each sequence grows by its own length, as if it were alone:
  /// rows that are padding are not appended. The cache is as it was if anything fails.
  void forward(View<const float, 3> x, KvCache& cache, std::span<const Index> sequences, View<float, 3> y,
               const AttentionOptions& options = {}) const;

  /// Cross-attention to what remember() has put into a cache: decodes without computing or copying keys again. Not causal.
  void forward_remembered(View<const float, 3> x, const KvCache& cache, std::span<const Index> sequences,
                          View<float, 3> y, const AttentionOptions& options = {}) const;
  /// Appends the keys and values of memory, batch element b to sequence sequences[b], one after the other: a sequence may be named twice.
  void remember(View<const float, 3> memory, KvCache& cache, std::span<const Index> sequences,
                const RememberOptions& options = {}) const;

 private:
  friend class internal::LayerCalls;
  detail::Size heads_, kv_heads_, head_dim_, x_width_, memory_width_;
  std::optional<float> scale_;
  PackedMatrix in_proj_;        // columns of q, k and v, each from a multiple of 32 on; or, if widths differ, of q
  PackedMatrix memory_proj_;    // then of k and v
  std::vector<float> in_bias_;  // by the columns of q, k, v
  Linear out_proj_;
};

struct FeedForwardOptions {
  Activation activation = Activation::relu;  ///< gelu: BERT; relu: T5; gelu_tanh, gated: T5 1.1; silu, gated: Llama
};

/// y = linear2(activation(linear1(x))); gated if the state dict has linear_gate: y = linear2(activation(linear_gate(x)) ∘ linear1(x)).
/// Tensors: linear1.weight [d_ff, d_model], linear1.bias, linear2.weight [d_model, d_ff], linear2.bias, as torch.nn.TransformerEncoderLayer names
/// them; linear_gate.weight [d_ff, d_model], linear_gate.bias.
class HEADLANE_API FeedForward {
 public:
  FeedForward() = default;
  FeedForward(const StateDict& state, std::string_view prefix, const FeedForwardOptions& options = {});

  [[nodiscard]] Index d_model() const { return linear2_.columns(); }
  [[nodiscard]] Index d_ff() const { return linear2_.rows(); }
  [[nodiscard]] OwnedStateDict state_dict(std::string_view prefix = {}) const;

  /// Of the hidden layer at most 4 MiB are stored at a time, or 96 rows where those are more.
  void forward(View<const float, 3> x, View<float, 3> y, int num_threads = 0) const;

 private:
  friend class internal::LayerCalls;
  Activation activation_ = Activation::none;
  bool gated_ = false;
  PackedMatrix linear1_, gate_, linear2_;
  std::vector<float> bias1_, gate_bias_, bias2_;
};

/// Of EncoderLayer and DecoderLayer.
struct TransformerLayerOptions {
  MultiHeadAttentionOptions attention = {};
  Activation activation = Activation::relu;
  NormKind norm = NormKind::layer;
  bool norm_first =
      false;  ///< x + f(norm(x)), as in most models since GPT-2; otherwise norm(x + f(x)) as in Vaswani et al. 2017 and BERT
  float eps = 1e-5f;  ///< of the norms
};

/// torch.nn.TransformerEncoderLayer. Tensors: self_attn.… (MultiHeadAttention), linear1.…, linear2.… (FeedForward), norm1.…, norm2.…
class HEADLANE_API EncoderLayer {
 public:
  EncoderLayer() = default;
  EncoderLayer(const StateDict& state, std::string_view prefix, const TransformerLayerOptions& options);

  [[nodiscard]] Index d_model() const { return self_attn_.d_model(); }
  [[nodiscard]] OwnedStateDict state_dict(std::string_view prefix = {}) const;

  void forward(View<const float, 3> x, View<float, 3> y, const AttentionOptions& options = {}) const;

 private:
  bool norm_first_ = false;
  MultiHeadAttention self_attn_;
  FeedForward feed_forward_;
  Normalization norm1_, norm2_;
};

/// torch.nn.TransformerDecoderLayer: self-attention, cross-attention to memory, feed-forward. Tensors: as EncoderLayer, with multihead_attn.… (the
/// cross-attention) and norm3.… (the feed-forward's).
class HEADLANE_API DecoderLayer {
 public:
  DecoderLayer() = default;
  DecoderLayer(const StateDict& state, std::string_view prefix, const TransformerLayerOptions& options);

  [[nodiscard]] Index d_model() const { return self_attn_.d_model(); }
  [[nodiscard]] const MultiHeadAttention& self_attn() const { return self_attn_; }
  [[nodiscard]] const MultiHeadAttention& multihead_attn() const { return multihead_attn_; }
  [[nodiscard]] OwnedStateDict state_dict(std::string_view prefix = {}) const;

  /// All positions at once, each seeing those before it unless `self` says otherwise.
  void forward(View<const float, 3> x, View<const float, 3> memory, View<float, 3> y,
               const AttentionOptions& self = {.causal = true}, const AttentionOptions& cross = {}) const;
  /// The next tokens of sequences whose earlier ones the cache holds, and whose memory another cache (multihead_attn().remember()).
  /// The bits of all positions at once.
  void forward(View<const float, 3> x, KvCache& cache, std::span<const Index> sequences, const KvCache& memory,
               std::span<const Index> memory_sequences, View<float, 3> y, const AttentionOptions& self = {},
               const AttentionOptions& cross = {}) const;

 private:
  friend class internal::LayerCalls;
  bool norm_first_ = false;
  MultiHeadAttention self_attn_, multihead_attn_;
  FeedForward feed_forward_;
  Normalization norm1_, norm2_, norm3_;
};

}  // namespace headlane
