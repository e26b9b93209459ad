// A checked call of attention, and one batch element of it.
#pragma once

#include <headlane/attention.hpp>
#include <headlane/view.hpp>

#include <span>

namespace headlane::internal {

struct KvPages;
struct Operand;

namespace kernels {
struct KernelTable;
}

/// Keys and values: in views, or in a cache, and then the views are only shapes.
struct KeysAndValues {
  View<const float, 4> k, v;
  const KvPages* cache = nullptr;
  std::span<const Index> sequences = {};  // of the cache, one for each batch element
  /// While the arguments of a layer are checked that will append to the cache: the keys each sequence will then have gained.
  Index growth = 0;
  View<const Index, 1> growths = {};  // if data is not null: one for each sequence, instead

  /// Keys of a batch element in the cache.
  [[nodiscard]] Index cached(Index element) const;
};

/// Attention whose arguments are checked and whose defaults are filled in; no output is empty. Null data of a view: not given.
struct AttentionProblem {
  View<const float, 4> q;
  KeysAndValues keys;
  View<float, 4> out;  // of attention_weights only a shape
  const AttentionOptions& given;
  Index batch;  // elements, or sequences of a ragged batch
  float scale;
  Index left, right;  // row i sees keys position(i) - left … position(i) + right: window and causal
  const kernels::KernelTable& kernel;
  int threads;
};

/// One batch element, or one sequence of a ragged batch.
struct Element {
  Index number, batch;      // among all of them, and its place along the axis of batch elements
  Index first_query, rows;  // its rows of q and out
  Index queries;            // of those so many are there, the others are padding
  Index first_key, keys;    // its keys
  Index offset;             // position of its first query on the key axis
};
Element element(const AttentionProblem& p, Index number);

/// The longest sequence of a ragged batch; `otherwise` if it is none.
Index longest_of(const View<const Index, 1>& starts, Index otherwise);

/// Kv heads of all elements; query heads that share one.
inline Index pairs_of(const AttentionProblem& p) { return p.batch * p.keys.k.shape[1]; }
inline Index group_of(const AttentionProblem& p) { return p.q.shape[1] / p.keys.k.shape[1]; }

/// Keys and values of sequences of a cache, perhaps before they grow. Throws std::invalid_argument if one is not there.
KeysAndValues keys_of(const char* function, const KvCache& cache, std::span<const Index> sequences, Index growth = 0,
                      const View<const Index, 1>& growths = {});

/// What a check looks at: all, or only shapes and strides, for a plan.
enum class Look { all, shapes };

/// Checks the arguments and fills in defaults.
AttentionProblem checked_attention(const char* function, const View<const float, 4>& q, const KeysAndValues& keys,
                                   const View<float, 4>& out, const AttentionOptions& options, Look look);
/// The same without values, for functions that write something else than attention's result.
AttentionProblem checked_scores(const char* function, const View<const float, 4>& q, const View<const float, 4>& k,
                                const Operand& result, const AttentionOptions& options);

/// attention() in the name of `function`.
void attention_named(const char* function, const View<const float, 4>& q, const KeysAndValues& keys,
                     const View<float, 4>& out, const AttentionOptions& options);

/// [batch, length, heads · dim] as [batch, head, length, dim].
template <class T>
View<T, 4> by_head(const View<T, 3>& x, Index dim) {
  return x.split(2, dim).permuted({0, 2, 1, 3});
}

/// Of a problem with at least one row.
void run_attention(const char* function, const AttentionProblem& p);

}  // namespace headlane::internal
