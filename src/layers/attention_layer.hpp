// The checks and the computation of MultiHeadAttention, for it and for layers that contain one.
#pragma once

#include "core/check.hpp"
#include "layers/description.hpp"
#include "layers/forward_check.hpp"

#include <headlane/multi_head_attention.hpp>
#include <headlane/view.hpp>

#include <span>
#include <vector>

namespace headlane::internal {

/// Where keys and values come from.
struct KeySource {
  enum class Kind {
    self,             // x
    memory,           // cross-attention
    growing_cache,    // self-attention to what a cache holds once the keys of x are appended
    projected_cache,  // cross-attention to what a cache holds
  };
  Kind kind = Kind::self;
  View<const float, 3> memory = {};  // of memory
  KvCache* growing = nullptr;        // of growing_cache
  const KvCache* cache = nullptr;    // of either kind of cache
  std::span<const Index> sequences = {};

  /// Keys are projected from x, together with the queries.
  [[nodiscard]] bool from_x() const { return kind == Kind::self || kind == Kind::growing_cache; }
};

inline KeySource growing(KvCache& cache, std::span<const Index> sequences) {
  return {.kind = KeySource::Kind::growing_cache, .growing = &cache, .cache = &cache, .sequences = sequences};
}

inline KeySource projected(const KvCache& cache, std::span<const Index> sequences) {
  return {.kind = KeySource::Kind::projected_cache, .cache = &cache, .sequences = sequences};
}

/// Columns of the packed projection: the widths of q and of k or v, where k and v begin, where v
/// ends. Each begins at a multiple of 32, the width of a panel.
struct ProjectionColumns {
  Index q_width, kv_width, k, v, end;
};
ProjectionColumns projection_columns(Index heads, Index kv_heads, Index head_dim);
/// Of the heads of this rank.
ProjectionColumns projection_columns(const MultiHeadAttention& layer);

/// Query heads that share a kv head; 0 in a layer without weights.
inline Index group_of(const MultiHeadAttention& layer) {
  const Index kv_heads = layer.shares().count();
  return kv_heads == 0 ? 0 : layer.heads() / kv_heads;
}

/// The width of x.
inline Index x_width(const MultiHeadAttention& layer) { return layer.in_proj().rows(); }

/// Undoes what a call appends to a cache, unless the call commits. At most one per thread at a
/// time.
class AppendGuard {
 public:
  AppendGuard(KvCache& cache, std::span<const Index> sequences);
  ~AppendGuard();
  AppendGuard(const AppendGuard&) = delete;
  AppendGuard& operator=(const AppendGuard&) = delete;
  void commit() { committed_ = true; }

 private:
  KvCache& cache_;
  std::span<const Index> sequences_;
  std::vector<Index>& lengths_;
  bool committed_ = false;
};

/// Checks shapes, overlaps (y may be x itself), and options that a layer does not accept;
/// attention() checks the rest.
void check_attention(const MultiHeadAttention& layer, const ForwardOperands& operands, const KeySource& source,
                     const AttentionOptions& options);
/// Checks what attention will check, for all heads, a cache as it will have grown: for a layer that
/// writes or sends something before. x and memory are read for their shapes alone.
void check_keys(const MultiHeadAttention& layer, const ForwardOperands& operands, const KeySource& source,
                const AttentionOptions& options);
/// Does both, the latter where it is needed, on all ranks of a team, which compare the call. `type`
/// is that of x and y.
void check_attention_together(const MultiHeadAttention& layer, const ForwardOperands& operands, const KeySource& source,
                              DType type, const AttentionOptions& options);
/// True if check_keys() has to be called before attend().
bool needs_check_of_keys(const MultiHeadAttention& layer, const KeySource& source);

/// What the ranks of a team compare of the options of a layer, and of the keys of a call.
void describe(Description& text, const MultiHeadAttentionOptions& options);
void describe(Description& text, const KeySource& source, const ForwardOperands& operands, DType type);

void check_project_memory(const MultiHeadAttention& layer, const Operand& memory, const KvCache& cache,
                          std::span<const Index> sequences, const ProjectMemoryOptions& options);

/// y = layer(x) + residual; the residual may have null data. Arguments are checked by
/// check_attention() and, where needs_check_of_keys(), check_keys().
void attend(Caller caller, const MultiHeadAttention& layer, const View<const float, 3>& x, const KeySource& source,
            const View<float, 3>& y, const View<const float, 3>& residual, const AttentionOptions& options);
void project_memory(const MultiHeadAttention& layer, const View<const float, 3>& memory, KvCache& cache,
                    std::span<const Index> sequences, const ProjectMemoryOptions& options);

}  // namespace headlane::internal
