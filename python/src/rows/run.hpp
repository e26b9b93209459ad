// One run of operations: a group of sequences goes through all of them, and a chunk of rows through
// those that follow each other, while it is in the cache.
#pragma once

#include "core/views.hpp"
#include "rows/between.hpp"
#include "rows/heads.hpp"
#include "rows/operation.hpp"
#include "rows/positions.hpp"
#include "rows/recurrent.hpp"

#include <headlane/convert.hpp>
#include <headlane/gemm_batch.hpp>
#include <headlane/gemm_gated.hpp>
#include <headlane/norm.hpp>
#include <headlane/runtime.hpp>

#include <algorithm>
#include <span>
#include <type_traits>
#include <vector>

namespace headlane::python {

/// Rows per thread of a chunk and of a group. On Zen 4, MiniLM's encoder layers with one thread
/// take 2 % less time with chunks of 96 rows, 1 % more with 390, and 28 % more with all 4096 rows
/// at once, which are in new memory. BERT-base's with two threads take 9 % more with 48 rows per
/// thread than with 195: every chunk reads 28 MB of weights.
inline constexpr Index chunk_rows = 192, group_rows = 384;
/// Chunks are rounded up to multiples of two tiles of 12 rows: two threads have whole tiles.
inline constexpr Index row_unit = 24;
/// A chunk has fewer rows if its values would take more than this; so does a group.
inline constexpr Index most_bytes = Index{16} << 20;

/// A run, of elements of type T.
template <class T>
class Run {
 public:
  /// attentions, states: for all sequences.
  Run(const std::vector<Operation>& operations, const std::vector<Index>& widths, const Arrays& vectors,
      const std::vector<AttentionArguments>& attentions, const Arrays& states, int num_threads)
      : operations_(operations),
        vectors_(vectors),
        attentions_(attentions),
        states_(states),
        num_threads_(num_threads) {
    for (const Index width : widths) values_.push_back({.width = width});
  }

  /// Sets the memory of a value that is given or returned.
  void set(Place place, const Array& array) { values_[static_cast<std::size_t>(place)].data = array.data<T>(); }

  /// Computes all operations for sequences of this length; rows without attention are sequences of
  /// length 1.
  void compute(Index sequences, Index length) {
    if (sequences == 0 || length == 0) return;
    divide();
    const Index threads = num_threads_ > 0 ? num_threads_ : headlane::num_threads();
    Index of_group = 0, of_chunk = 0;  // elements of a row
    for (const Value& value : values_)
      if (value.data == nullptr) (value.part == everywhere ? of_group : of_chunk) += value.width;
    // Equal shares of all rows, about as many as are wanted, that fit into the memory.
    const auto share_of = [&](Index all, Index wanted, Index width) {
      if (width == 0) return all;
      const Index rows = std::min(wanted * threads, most_bytes / static_cast<Index>(sizeof(T)) / width);
      const Index shares = rows == 0 ? all : std::max<Index>(1, (all + rows / 2) / rows);
      return (all + shares - 1) / shares;
    };
    const Index group = std::max<Index>(1, share_of(sequences * length, group_rows, of_group) / length);
    Index chunk = share_of(group * length, chunk_rows, of_chunk);
    if (chunk < group * length) chunk = (chunk + row_unit - 1) / row_unit * row_unit;
    Between between;
    T* memory = between.of<T>(group * length * of_group + chunk * of_chunk);
    for (Value& value : values_) {
      if (value.data != nullptr) continue;
      value.data = memory;
      memory += (value.part == everywhere ? group * length : chunk) * value.width;
    }
    for (Index first = 0; first < sequences; first += group)
      compute(first, std::min(group, sequences - first), length, chunk);
  }

 private:
  using Kind = Operation::Kind;
  static constexpr int everywhere = -1;

  /// A value is of all rows (given or returned), of the rows of a group, or of those of a chunk.
  struct Value {
    T* data = nullptr;
    Index width = 0;
    int part = everywhere;  // the operations that have it while a chunk goes through them
    bool is_whole = false;
  };

  /// Operations begin … end - 1: those on rows that follow each other, or one of whole sequences.
  struct Part {
    std::size_t begin, end;
  };

  /// Divides the operations into parts, and finds which values are of a part alone.
  void divide() {
    const std::size_t first_result = values_.size() - operations_.size();
    for (Value& value : values_) value.is_whole = value.data != nullptr;
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      if (i > 0 && operations_[i].is_of_rows() && operations_[i - 1].is_of_rows()) ++parts_.back().end;
      else parts_.push_back({i, i + 1});
      const int part = static_cast<int>(parts_.size()) - 1;
      values_[first_result + i].part = operations_[i].is_of_rows() ? part : everywhere;
      for (const Place input : operations_[i].inputs())
        if (input != absent && at(input).part != part) at(input).part = everywhere;
    }
  }

  void compute(Index first_sequence, Index sequences, Index length, Index chunk) {
    first_of_group_ = first_sequence * length;
    for (const Part& part : parts_) {
      const Operation& operation = operations_[part.begin];
      row_ = 0;
      rows_ = sequences * length;
      if (operation.has_state()) pass_state(operation, part.begin, first_sequence, length);
      else if (!operation.is_of_rows()) attend(operation, part.begin, first_sequence, length);
      else
        for (const Index all = rows_; row_ < all; row_ += chunk) {
          rows_ = std::min(chunk, all - row_);
          for (std::size_t i = part.begin; i < part.end;) i += compute_from(i, part.end);
        }
    }
  }

  [[nodiscard]] Value& at(Place place) { return values_[static_cast<std::size_t>(place)]; }

  /// The rows of a value that are being computed.
  [[nodiscard]] View<T, 2> value(Place place) {
    const Value& value = at(place);
    const Index row = value.is_whole ? first_of_group_ + row_ : value.part == everywhere ? row_ : 0;
    return {value.data + row * value.width, {rows_, value.width}};
  }
  [[nodiscard]] Place place_of_result(std::size_t operation) const {
    return static_cast<Place>(values_.size() - operations_.size() + operation);
  }
  [[nodiscard]] View<const float, 1> vector(Place place) const {
    if (place == absent || !vectors_[static_cast<std::size_t>(place)]) return {};
    return view_of<const float, 1>(*vectors_[static_cast<std::size_t>(place)]);
  }
  [[nodiscard]] View<const float, 3> table(Place place) const {
    return view_of<const float, 3>(*vectors_[static_cast<std::size_t>(place)]);
  }
  /// The residual in float32, in which norms read it.
  [[nodiscard]] AnyView<const float> wide_residual(const Operation& operation) {
    if (operation.residual == absent) return {};
    const View<const T, 2> narrow = value(operation.residual);
    if constexpr (std::is_same_v<T, float>) return narrow;
    else {
      wide_.resize(static_cast<std::size_t>(narrow.shape[0] * narrow.shape[1]));
      const View<float, 2> wide(wide_.data(), narrow.shape);
      convert(narrow, wide, {num_threads_});
      return View<const float, 2>(wide);
    }
  }

  /// Computes an operation and those after it that can be computed at the same time; returns how
  /// many these are.
  std::size_t compute_from(std::size_t i, std::size_t end) {
    const Operation& o = operations_[i];
    if (o.kind == Kind::linear) return multiply_from(i, end);
    const View<T, 2> x = value(o.x), y = value(place_of_result(i));
    if (o.kind == Kind::gated)
      gemm_gated(x, *o.matrix, *o.up, y,
                 {.activation = o.activation,
                  .gate_bias = vector(o.bias),
                  .up_bias = vector(o.second),
                  .activations = o.activations,
                  .num_threads = num_threads_});
    else if (o.kind == Kind::columns) copy_columns(o, x, y);
    else if (o.kind == Kind::join) join_heads(o, x, value(o.residual), y);
    else if (o.kind == Kind::activation) activate(x, y, o.activation, {.num_threads = num_threads_});
    else if (o.kind == Kind::rotary) rotate(o, x, y, table(o.bias), table(o.second), first_of_group_ + row_);
    else if (o.kind == Kind::weigh) weigh(x, y, table(o.bias), first_of_group_ + row_);
    else if (o.kind == Kind::scale) each(x, x, y, [&](float one, float) { return one * o.factor; });
    else if (o.kind == Kind::sum) each(x, value(o.residual), y, [](float one, float two) { return one + two; });
    else if (o.kind == Kind::product && o.head_dim > 0) multiply_heads(o, x, value(o.residual), y);
    else if (o.kind == Kind::gated_norm)
      normalise_gated(o, x, value(o.residual), y, vector(o.second), wide_, num_threads_);
    else if (o.kind == Kind::product) each(x, value(o.residual), y, [](float one, float two) { return one * two; });
    else normalise(o, x, y);
    return 1;
  }

  /// y = f(one, two) of each element, rounded to the type.
  template <class F>
  static void each(const View<T, 2>& one, const View<T, 2>& two, const View<T, 2>& y, const F& f) {
    std::transform(one.data, one.data + one.shape[0] * one.shape[1], two.data, y.data,
                   [&](T a, T b) { return static_cast<T>(f(static_cast<float>(a), static_cast<float>(b))); });
  }

  void normalise(const Operation& o, View<T, 2> x, View<T, 2> y) {
    if (o.head_dim > 0)
      for (View<T, 2>* rows : {&x, &y}) *rows = {rows->data, {rows_ * rows->shape[1] / o.head_dim, o.head_dim}};
    if (o.centred) layer_norm(x, y, {o.eps, vector(o.second), vector(o.bias), wide_residual(o), {}, num_threads_});
    else rms_norm(x, y, {o.eps, vector(o.second), wide_residual(o), {}, num_threads_});
  }

  /// Products in a row that do not need each other are one list.
  std::size_t multiply_from(std::size_t i, std::size_t end) {
    const Place results = place_of_result(i);
    problems_.clear();
    for (std::size_t j = i; j < end; ++j) {
      const Operation& o = operations_[j];
      if (o.kind != Kind::linear || o.x >= results || o.residual >= results) break;
      GemmOptions options{.bias = vector(o.bias),
                          .activation = o.activation,
                          .activations = o.activations,
                          .num_threads = num_threads_};
      if (o.residual != absent) options.residual = value(o.residual);
      problems_.push_back({value(o.x), {}, o.matrix, value(place_of_result(j)), options});
    }
    const auto& [a, b, packed, c, options] = problems_.front();
    if (problems_.size() == 1) gemm(a, *packed, c, options);
    else gemm_batch(std::span<const GemmProblemOf<T>>(problems_), num_threads_);
    return problems_.size();
  }

  /// The rows of a value that are being computed, by sequences.
  [[nodiscard]] View<T, 3> by_sequence(Place place, Index length) {
    const View<T, 2> rows = value(place);
    return {rows.data, {rows_ / length, length, rows.shape[1]}};
  }

  void pass_state(const Operation& o, std::size_t i, Index first, Index length) {
    const auto rows = [&](Place place) { return by_sequence(place, length); };
    const auto array = [](const Arrays& all, Place place) -> const std::optional<Array>& {
      return all[static_cast<std::size_t>(place)];
    };
    const Sequences<T> of{first, pointer_to(array(states_, o.attention)), num_threads_};
    const View<T, 3> result = rows(place_of_result(i));
    if (o.kind == Kind::convolve)
      return convolve(o, rows(o.x), result, view_of<const float, 2>(*array(vectors_, o.second)), vector(o.bias), of);
    const View<T, 3> beta = o.beta == absent ? View<T, 3>{} : rows(o.beta);
    attend_linearly<T>(o, {rows(o.x), rows(o.keys), rows(o.values), rows(o.residual), beta}, result,
                       {*array(vectors_, o.second), *array(vectors_, o.bias), vector(o.third)}, of);
  }

  void attend(const Operation& o, std::size_t i, Index first, Index length) {
    const AttentionArguments& arguments = attentions_[static_cast<std::size_t>(o.attention)];
    AttentionOptions options = arguments.options;
    const Index end = first + rows_ / length;
    if (options.mask) options.mask = options.mask.slice(0, first, end);
    if (options.bias) options.bias = options.bias.slice(0, first, end);
    const Place result = place_of_result(i);
    if (arguments.cache != nullptr) {
      attend_with_cache(o, *arguments.cache, result, first, length, options);
      return;
    }
    const auto rows = [&](Place place) { return by_sequence(place, length); };
    multi_head_attention(rows(o.x), rows(o.keys), rows(o.values), rows(result), o.heads, options);
  }

  /// Keys and values, if there are any, are appended to those of the cache, all of which the
  /// queries see.
  void attend_with_cache(const Operation& o, const CacheMemory& cache, Place result, Index first, Index length,
                         const AttentionOptions& options) {
    const auto heads = [&](Place place, Index column, Index count, Index dim) {
      return heads_of(by_sequence(place, length), column, count, dim);
    };
    const auto of_cache = [&](Place place, Index column, Index dim, const Array& array) {
      const auto all = view_of<T, 4>(array).slice(0, first, first + rows_ / length);
      if (place == absent) return all.slice(2, 0, cache.used);
      const View<T, 4> rows = heads(place, column, o.kv_heads, dim);
      const auto to = all.slice(2, cache.used, cache.used + length);
      for (Index sequence = 0; sequence < rows.shape[0]; ++sequence)
        for (Index head = 0; head < rows.shape[1]; ++head)
          for (Index row = 0; row < length; ++row)
            std::copy_n(&rows(sequence, head, row, 0), rows.shape[3], &to(sequence, head, row, 0));
      return all.slice(2, 0, cache.used + length);
    };
    const auto keys = of_cache(o.keys, o.columns[1], o.head_dim, cache.keys);
    const auto values = of_cache(o.values, o.columns[2], o.value_dim, cache.values);
    attention(heads(o.x, o.columns[0], o.heads, o.head_dim), keys, values, heads(result, 0, o.heads, o.value_dim),
              options);
  }

  const std::vector<Operation>& operations_;
  const Arrays& vectors_;
  const std::vector<AttentionArguments>& attentions_;
  const Arrays& states_;
  int num_threads_;
  std::vector<Value> values_;
  std::vector<Part> parts_;
  Index first_of_group_ = 0, row_ = 0, rows_ = 0;  // being computed: row_ counts from the first of the group
  std::vector<GemmProblemOf<T>> problems_;
  std::vector<float> wide_;
};

}  // namespace headlane::python
