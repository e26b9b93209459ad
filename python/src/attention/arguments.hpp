// The operands and results of functions that compute scores, and the library's views of them.
#pragma once

#include "attention/options.hpp"
#include "core/batch.hpp"

namespace headlane::python {

/// An array [..., heads, rows, columns], which may be broadcast, at a position of the batch: the
/// view's first axis is the last batch axis.
template <class T>
View<T, 4> view_at(const Array& x, const Batch& batch, const Batch::Position& at, Index heads, Index rows,
                   Index columns);

/// The operands of one call, and their common axes. An operand is absent if its handle has no
/// object.
struct ScoreOperands {
  ScoreOperands(const Call& call, nb::handle q, nb::handle k, nb::handle v, bool grouped)
      : ScoreOperands(call, q, k, v, grouped, Floats()) {
    to_float32();
  }
  /// Without copies of 16 bits.
  ScoreOperands(const Call& call, nb::handle q, nb::handle k, nb::handle v, bool grouped, Floats floats);

  Array query;
  std::optional<Array> key, value;
  Batch batch;  // the axes before heads, rows, columns
  Index heads = 1, kv_heads = 1;
  bool has_heads = false;

  void to_float32();
  /// [..., q_length].
  [[nodiscard]] std::vector<Index> shape() const;
  /// Throws unless the options fit the batch and the masks broadcast to the scores; `keys` as
  /// ScoreOptions::mask_keys() returned.
  void check(const ScoreOptions& options, Index keys) const;
  /// The options of the call at a position; check() has been called.
  [[nodiscard]] AttentionOptions options_at(const ScoreOptions& options, Index keys, const Batch::Position& at) const;
  /// Calls f(at) for each call of the library, which takes one batch axis: walks those before it.
  template <class F>
  void for_each(F f) const {
    batch.for_each(std::max(0, batch.rank() - 1), f);
  }

  template <class T = float>
  [[nodiscard]] View<T, 4> query_at(const Batch::Position& at) const {
    return view_at<T>(query, batch, at, heads, query.size(-2), query.size(-1));
  }
  template <class T = float>
  [[nodiscard]] View<T, 4> key_at(const Batch::Position& at) const {
    return view_at<T>(*key, batch, at, kv_heads, key->size(-2), key->size(-1));
  }
  template <class T = float>
  [[nodiscard]] View<T, 4> value_at(const Batch::Position& at) const {
    return view_at<T>(*value, batch, at, kv_heads, value->size(-2), value->size(-1));
  }
  /// A result [..., q_length, columns].
  template <class T = float>
  [[nodiscard]] View<T, 4> result_at(const Array& result, const Batch::Position& at) const {
    return view_at<T>(result, batch, at, heads, result.size(-2), result.size(-1));
  }

  /// Throws if a result that several calls write overlaps an input. Within one call the library
  /// checks.
  void require_result_apart(const Result& result, const ScoreOptions& options) const;

 private:
  void count_heads(bool grouped);
  void check_mask(const Array& mask, Index columns, const char* what) const;
};

/// One value for each row, [..., q_length], not broadcast, at a position of the batch.
View<float, 3> values_of_rows(const Array& values, const Batch& batch, const Batch::Position& at, bool has_heads);

/// The results of a call: out, (out, lse) or (out, max, sum). New ones are like `like`, but those
/// beside out are float32 whatever its type.
class RowResults {
 public:
  RowResults(const Call& call, const Like& like, nb::handle out, const std::vector<Index>& rows, Index columns,
             bool lse, bool sum)
      : RowResults(call, like, out, rows, columns, lse, sum, Floats()) {
    out_->to_float32();
  }
  /// Without a copy of 16 bits.
  RowResults(const Call& call, const Like& like, nb::handle out, const std::vector<Index>& rows, Index columns,
             bool lse, bool sum, Floats floats);
  [[nodiscard]] const Result& result() const { return *out_; }
  [[nodiscard]] Result& result() { return *out_; }
  [[nodiscard]] const Array& out() const { return out_->array(); }
  /// Views without data if not wanted.
  [[nodiscard]] View<float, 3> lse_at(const Batch& batch, const Batch::Position& at, bool has_heads) const;
  [[nodiscard]] View<float, 3> sum_at(const Batch& batch, const Batch::Position& at, bool has_heads) const;
  [[nodiscard]] nb::object object() const;

 private:
  std::optional<Result> lse_, sum_, out_;
};

}  // namespace headlane::python
