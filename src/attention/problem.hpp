// A checked call of attention, and one batch element of it.
#pragma once

#include "core/check.hpp"

#include <headlane/attention.hpp>
#include <headlane/view.hpp>

#include <span>

namespace headlane::internal {

struct HalfTensors;
struct KvPages;

namespace kernels {
struct KernelTable;
}

/// Keys and values: tensors, or sequences of a cache, or tensors of 16 bits that tasks widen block
/// by block. k and v of the latter two are only shapes.
struct KeysAndValues {
  View<const float, 4> k, v;
  const KvPages* cache = nullptr;
  std::span<const Index> sequences = {};  // of the cache, one for each batch element
  /// For the checks of a layer that will append to the cache: how many keys each sequence will have
  /// gained by then.
  Index growth = 0;
  View<const Index, 1> growths = {};  // [sequences], if given, instead
  const HalfTensors* halves = nullptr;

  /// Number of keys that a batch element has in the cache.
  [[nodiscard]] Index cached(Index element) const;
};

/// A side of the window that is not bounded: beyond every key from every position.
inline constexpr Index unbounded = Index{1} << 42;

/// A call of attention with checked arguments and defaults filled in; no output is empty.
struct AttentionProblem {
  View<const float, 4> q;
  KeysAndValues keys;
  View<float, 4> out;  // for attention_weights only a shape
  const AttentionOptions& options;
  Index batch;  // elements, or sequences of variable length
  float scale;
  Index left, right;  // window and causal: keys position - left … position + right are visible
  const kernels::KernelTable& kernel;
  int threads;
};

/// Without rows there is nothing to compute, nor to write.
inline bool has_rows(const AttentionProblem& p) { return p.batch != 0 && p.q.shape[1] != 0 && p.q.shape[2] != 0; }

/// One batch element, or one of the sequences that share a batch element.
struct Element {
  Index number, batch;      // among all of them, and the index along the axis of batch elements
  Index first_query, rows;  // its rows of q and out
  Index queries;            // the first of those rows; the others are padding
  Index first_key, keys;
  Index position;  // of its first query on the key axis
};
Element element(const AttentionProblem& p, Index number);

/// A key or value of a kv head of an element.
template <class T>
const T* row_at(const View<const T, 4>& view, const Element& e, Index head, Index key) {
  return view.data + e.batch * view.strides[0] + head * view.strides[1] + (e.first_key + key) * view.strides[2];
}

/// Length of the longest sequence, or `otherwise` without starts.
Index longest_of(const View<const Index, 1>& starts, Index otherwise);

/// Number of kv heads of all batch elements together. A kv head is numbered among these.
inline Index total_kv_heads(const AttentionProblem& p) { return p.batch * p.keys.k.shape[1]; }
/// Number of query heads that share a kv head.
inline Index group_size(const AttentionProblem& p) { return p.q.shape[1] / p.keys.k.shape[1]; }
/// True if all keys and values have more than 2^19 elements, of float32 2 MiB: they do not stay in
/// a near cache.
inline bool keys_are_far(const AttentionProblem& p) {
  constexpr double near = 512 << 10;
  const auto tokens = static_cast<double>(total_kv_heads(p)) * static_cast<double>(p.keys.k.shape[2]);
  return tokens * static_cast<double>(p.keys.k.shape[3] + p.keys.v.shape[3]) > near;
}

/// Keys and values of sequences of a cache, if wanted as they will be after growing. Throws
/// std::invalid_argument if a sequence does not exist.
KeysAndValues keys_of(Caller caller, const KvCache& cache, std::span<const Index> sequences, Index growth = 0,
                      const View<const Index, 1>& growths = {});

/// How much a check covers: everything, or for a plan only shapes and strides.
enum class CheckLevel { full, shapes };

/// q, k, v, and out or what a function has in its place, as the caller gave them. With a cache, k
/// and v are none.
struct AttentionOperands {
  Operand q, k, v, out;
};

/// Checks the operands and fills in defaults. Of the views only the shapes are looked at.
AttentionProblem checked_attention(const AttentionOperands& operands, const View<const float, 4>& q,
                                   const KeysAndValues& keys, const View<float, 4>& out,
                                   const AttentionOptions& options, CheckLevel level);
/// The same for operands that are these views.
AttentionProblem checked_attention(Caller caller, const View<const float, 4>& q, const KeysAndValues& keys,
                                   const View<float, 4>& out, const AttentionOptions& options, CheckLevel level);
/// The same without values, for functions whose result is not attention's: operands.v is none.
AttentionProblem checked_scores(const AttentionOperands& operands, const View<const float, 4>& q,
                                const View<const float, 4>& k, const AttentionOptions& options);

/// attention(), on behalf of `caller`.
void attention_named(Caller caller, const View<const float, 4>& q, const KeysAndValues& keys, const View<float, 4>& out,
                     const AttentionOptions& options);

/// [batch, length, heads · dim] as [batch, head, length, dim].
template <class T>
View<T, 4> by_head(const View<T, 3>& x, Index dim) {
  return x.split(2, dim).permuted({0, 2, 1, 3});
}

/// Computes a problem that has at least one row.
void run_attention(Caller caller, const AttentionProblem& p);

}  // namespace headlane::internal
