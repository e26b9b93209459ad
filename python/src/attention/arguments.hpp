// What the functions that compute scores have in common: their options, their operands, and the library's views of both.
#pragma once

#include "core/batch.hpp"
#include "core/call.hpp"

#include <headlane/attention.hpp>

namespace headlane::python {

/// The options of one call, borrowed from the tuple that headlane/_attention.py makes. What needs the GIL is done when it is made.
struct ScoreOptions {
  ScoreOptions(const char* function, nb::handle options, nb::handle num_threads);

  std::optional<Array> mask, mask_bits, key_lengths, query_lengths, causal_offsets, query_starts, key_starts,
      alibi_slopes, sinks, relative_bias;
  AttentionOptions numbers{};  // the options that are no arrays

  /// Keys that a mask has, if the axis has so many: those of the longest sequence of a ragged batch.
  [[nodiscard]] Index keys_of_mask(Index keys) const;
};

/// The operands of one call, and the axes that they have in common. A handle without an object: there is no such operand.
struct ScoreOperands {
  ScoreOperands(const char* caller, nb::handle q, nb::handle k, nb::handle v, bool grouped);

  const char* function;
  Array query;
  std::optional<Array> key, value;
  Batch batch;  // the axes before heads, rows and columns
  Index heads = 1, kv_heads = 1;
  bool has_heads = false;

  /// [..., q_length].
  [[nodiscard]] std::vector<Index> shape() const;
  /// Throws unless the masks broadcast to the scores.
  void check_masks(const ScoreOptions& options, Index keys) const;
  /// The same for the whole batch; `keys` as in keys_of_mask().
  [[nodiscard]] AttentionOptions options_at(const ScoreOptions& options, Index keys, const Batch::Position& at) const;
  /// Calls f(at) for each call of the library: it knows one batch axis, those before it are walked.
  template <class F>
  void for_each(F f) const {
    batch.for_each(std::max(0, batch.rank() - 1), f);
  }

  [[nodiscard]] View<float, 4> query_at(const Batch::Position& at) const;
  [[nodiscard]] View<float, 4> key_at(const Batch::Position& at) const;
  [[nodiscard]] View<float, 4> value_at(const Batch::Position& at) const;
  /// A result [..., q_length, columns].
  [[nodiscard]] View<float, 4> result_at(const Array& result, const Batch::Position& at) const;

  /// As the library checks it for one call, for a result that several calls write.
  void require_result_apart(const Array& result, const ScoreOptions& options) const;

 private:
  void count_heads(bool grouped);
  void check_mask(const Array& mask, Index columns, const char* what) const;
};

/// The library's view of an array [..., heads, rows, columns] that may be broadcast: the last batch axis, heads, rows, columns.
template <class T>
View<T, 4> view_of(T* data, const Array& x, const Batch& batch, const Batch::Position& at, Index heads, Index rows,
                   Index columns);

/// One value for each row: [..., q_length], not broadcast.
View<float, 3> values_of_rows(const Array& values, const Batch& batch, const Batch::Position& at, bool has_heads);

/// One float for each head, or what is null if there are none.
View<const float, 1> per_head(const char* function, const std::optional<Array>& values);

/// What a call gives back: the result, and beside it the log-sum-exp, or the largest score and the sum.
class RowResults {
 public:
  RowResults(const char* function, nb::handle like, nb::handle out, const std::vector<Index>& rows, Index columns,
             bool lse, bool sum);
  [[nodiscard]] const Array& out() const { return out_->array(); }
  /// Null views if they are not wanted.
  [[nodiscard]] View<float, 3> lse_at(const Batch& batch, const Batch::Position& at, bool has_heads) const;
  [[nodiscard]] View<float, 3> sum_at(const Batch& batch, const Batch::Position& at, bool has_heads) const;
  [[nodiscard]] nb::object object() const;

 private:
  std::optional<Result> lse_, sum_, out_;
};

}  // namespace headlane::python
