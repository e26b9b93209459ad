// Operands of attention: PyTorch's shapes and broadcasting, brought to the library's [batch, head, sequence, dim].
#include "attention/arguments.hpp"

namespace headlane::python {
namespace {

/// Size along one of the last three axes, 1 where the array has no such axis.
Index inner_size(const Array& x, int axis) { return x.rank() < -axis ? 1 : x.size(axis); }

/// Stride along one of them, 0 where the array is broadcast.
Index inner_stride(const Array& x, int axis) { return inner_size(x, axis) == 1 ? 0 : x.stride(axis); }

/// PyTorch's empty tensors have no address, which would mean to the library that there is none.
template <class T>
const T* present(const T* data) {
  static constexpr T nothing{};
  return data != nullptr ? data : &nothing;
}

template <class T>
View<const T, 1> view_of_axis(const T* data, const Array& x) {
  return {present(data), {x.size(0)}, {x.stride(0)}};
}

/// Such options are those of one batch axis; without one there is a batch of one.
View<const Index, 1> per_batch(const ScoreOperands& of, const std::optional<Array>& values) {
  if (!values) return {};
  require(of.batch.rank() <= 1, of.function, ": ", values->name(), " is for [batch, heads, length, dim], here are ",
          of.batch.rank(), " batch axes");
  require(values->rank() == 1, of.function, ": ", values->name(), " has shape ", *values, ", wanted [batch]");
  return view_of_axis<Index>(values->integers(), *values);
}

View<const float, 2> table_of(const char* function, const std::optional<Array>& table) {
  if (!table) return {};
  require(table->rank() == 2, function, ": ", table->name(), " has shape ", *table, ", wanted [heads, buckets]");
  return {present<float>(table->floats()), {table->size(0), table->size(1)}, {table->stride(0), table->stride(1)}};
}

}  // namespace

template <class T>
View<T, 4> view_of(T* data, const Array& x, const Batch& batch, const Batch::Position& at, Index heads, Index rows,
                   Index columns) {
  const int last = batch.rank() - 1;
  const bool has_batch = last >= 0;
  return {data + batch.offset(x, std::max(0, last), at),
          {has_batch ? batch.size(last) : 1, heads, rows, columns},
          {has_batch ? batch.stride(x, last) : 0, inner_stride(x, -3), inner_stride(x, -2), inner_stride(x, -1)}};
}

template View<float, 4> view_of(float*, const Array&, const Batch&, const Batch::Position&, Index, Index, Index);

View<float, 3> values_of_rows(const Array& values, const Batch& batch, const Batch::Position& at, bool has_heads) {
  const int last = batch.rank() - 1;
  Index offset = 0;
  for (int axis = 0; axis < last; ++axis) offset += at[static_cast<std::size_t>(axis)] * values.stride(axis);
  return {values.floats() + offset,
          {last >= 0 ? batch.size(last) : 1, has_heads ? values.size(-2) : 1, values.size(-1)},
          {last >= 0 ? values.stride(last) : 0, has_heads ? values.stride(-2) : 0, values.stride(-1)}};
}

View<const float, 1> per_head(const char* function, const std::optional<Array>& values) {
  if (!values) return {};
  require(values->rank() == 1, function, ": ", values->name(), " has shape ", *values, ", wanted [heads]");
  return view_of_axis<float>(values->floats(), *values);
}

ScoreOperands::ScoreOperands(const char* caller, nb::handle q, nb::handle k, nb::handle v, bool grouped)
    : function(caller), query(caller, "query", q), batch(caller, 3) {
  if (k.is_valid()) key.emplace(function, "key", k);
  if (v.is_valid()) value.emplace(function, "value", v);
  for (const Array* array : {&query, key ? &*key : nullptr, value ? &*value : nullptr}) {
    if (array == nullptr) continue;
    array->require_float();
    require(array->rank() >= 2, function, ": ", array->name(), " has shape ", *array, ", the least is [length, dim]");
    batch.widen(*array);
    has_heads = has_heads || array->rank() >= 3;
  }
  count_heads(grouped);
}

void ScoreOperands::count_heads(bool grouped) {
  const Index of_query = inner_size(query, -3), of_key = key ? inner_size(*key, -3) : of_query,
              of_value = value ? inner_size(*value, -3) : of_key;
  const auto require_heads = [&](bool condition, const char* remedy) {
    if (condition) return;
    if (value) require(false, function, ": query has ", of_query, " heads, key ", of_key, ", value ", of_value, remedy);
    require(false, function, ": query has ", of_query, " heads, key ", of_key, remedy);
  };
  if (grouped) {
    require_heads(of_key == of_value && (of_key > 0 ? of_query % of_key == 0 : of_query == 0),
                  "; with enable_gqa key and value need the same number, which divides query's");
    heads = of_query;
    kv_heads = of_key;
    return;
  }
  for (const Index count : {of_query, of_key, of_value}) heads = heads == 1 ? count : heads;
  for (const Index count : {of_query, of_key, of_value})
    require_heads(count == 1 || count == heads, "; for grouped heads pass enable_gqa=True");
  // Heads that are all the same are one for the library, which then packs it once.
  const auto broadcast = [](const std::optional<Array>& x) { return !x || inner_stride(*x, -3) == 0; };
  kv_heads = broadcast(key) && broadcast(value) && heads > 0 ? 1 : heads;
}

std::vector<Index> ScoreOperands::shape() const {
  std::vector<Index> shape;
  for (int axis = 0; axis < batch.rank(); ++axis) shape.push_back(batch.size(axis));
  if (has_heads) shape.push_back(heads);
  shape.push_back(query.size(-2));
  return shape;
}

void ScoreOperands::check_mask(const Array& mask, Index columns, const char* what) const {
  const auto fits = [](Index size, Index wanted) { return size == 1 || size == wanted; };
  std::vector<Index> scores = shape();
  scores.push_back(columns);
  bool good = mask.rank() <= static_cast<int>(scores.size());
  for (int axis = 1; good && axis <= mask.rank(); ++axis)  // from the right
    good = fits(mask.size(-axis), scores[scores.size() - static_cast<std::size_t>(axis)]);
  require(good, function, ": ", mask.name(), " of shape ", mask, " does not broadcast to ", what, ", ", scores);
}

void ScoreOperands::check_masks(const ScoreOptions& options, Index keys) const {
  if (options.mask) check_mask(*options.mask, keys, "the scores");
  if (options.mask_bits) check_mask(*options.mask_bits, (keys + 7) / 8, "the scores in bytes of 8 keys");
}

AttentionOptions ScoreOperands::options_at(const ScoreOptions& options, Index keys, const Batch::Position& at) const {
  AttentionOptions result = options.numbers;
  result.key_lengths = per_batch(*this, options.key_lengths);
  result.query_lengths = per_batch(*this, options.query_lengths);
  result.causal_offsets = per_batch(*this, options.causal_offsets);
  result.query_starts = per_batch(*this, options.query_starts);
  result.key_starts = per_batch(*this, options.key_starts);
  result.alibi_slopes = per_head(function, options.alibi_slopes);
  result.sinks = per_head(function, options.sinks);
  result.relative_bias.table = table_of(function, options.relative_bias);
  const Index rows = query.size(-2);
  const auto& [mask, bits] = std::tie(options.mask, options.mask_bits);
  if (mask && mask->is_bool()) result.mask = view_of(mask->bools(), *mask, batch, at, heads, rows, keys);
  else if (mask) result.bias = view_of<const float>(mask->floats(), *mask, batch, at, heads, rows, keys);
  if (bits) result.mask_bits = view_of(bits->bytes(), *bits, batch, at, heads, rows, (keys + 7) / 8);
  return result;
}

View<float, 4> ScoreOperands::query_at(const Batch::Position& at) const {
  return view_of(query.floats(), query, batch, at, heads, query.size(-2), query.size(-1));
}

View<float, 4> ScoreOperands::key_at(const Batch::Position& at) const {
  return view_of(key->floats(), *key, batch, at, kv_heads, key->size(-2), key->size(-1));
}

View<float, 4> ScoreOperands::value_at(const Batch::Position& at) const {
  return view_of(value->floats(), *value, batch, at, kv_heads, value->size(-2), value->size(-1));
}

View<float, 4> ScoreOperands::result_at(const Array& result, const Batch::Position& at) const {
  return view_of(result.floats(), result, batch, at, heads, result.size(-2), result.size(-1));
}

void ScoreOperands::require_result_apart(const Array& result, const ScoreOptions& options) const {
  if (batch.rank() <= 1) return;
  const auto floats = [](const std::optional<Array>& x) { return x && !x->is_bool() ? &*x : nullptr; };
  require_apart(function, result,
                {&query, floats(key), floats(value), floats(options.mask), floats(options.alibi_slopes),
                 floats(options.sinks), floats(options.relative_bias)});
}

RowResults::RowResults(const char* function, nb::handle like, nb::handle out, const std::vector<Index>& rows,
                       Index columns, bool lse, bool sum) {
  if (lse || sum) lse_.emplace(function, like, nb::none(), rows);
  if (sum) sum_.emplace(function, like, nb::none(), rows);
  std::vector<Index> shape = rows;
  shape.push_back(columns);
  out_.emplace(function, like, out, shape);
}

View<float, 3> RowResults::lse_at(const Batch& batch, const Batch::Position& at, bool has_heads) const {
  return lse_ ? values_of_rows(lse_->array(), batch, at, has_heads) : View<float, 3>{};
}

View<float, 3> RowResults::sum_at(const Batch& batch, const Batch::Position& at, bool has_heads) const {
  return sum_ ? values_of_rows(sum_->array(), batch, at, has_heads) : View<float, 3>{};
}

nb::object RowResults::object() const {
  if (sum_) return nb::make_tuple(out_->object(), lse_->object(), sum_->object());
  if (lse_) return nb::make_tuple(out_->object(), lse_->object());
  return out_->object();
}

}  // namespace headlane::python
