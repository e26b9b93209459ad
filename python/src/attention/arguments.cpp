// Operands of attention: from PyTorch's shapes and broadcasting to the library's [batch, head,
// sequence, dim].
#include "attention/arguments.hpp"

namespace headlane::python {
namespace {

/// Size along one of the last three axes; 1 if the array has no such axis.
Index inner_size(const Array& x, int axis) { return x.rank() < -axis ? 1 : x.size(axis); }

/// Stride along one of them; 0 where the array is broadcast.
Index inner_stride(const Array& x, int axis) { return inner_size(x, axis) == 1 ? 0 : x.stride(axis); }

}  // namespace

template <class T>
View<T, 4> view_at(const Array& x, const Batch& batch, const Batch::Position& at, Index heads, Index rows,
                   Index columns) {
  const int last = batch.rank() - 1;
  const bool has_batch = last >= 0;
  return {x.data<T>() + batch.offset(x, std::max(0, last), at),
          {has_batch ? batch.size(last) : 1, heads, rows, columns},
          {has_batch ? batch.stride(x, last) : 0, inner_stride(x, -3), inner_stride(x, -2), inner_stride(x, -1)}};
}

template View<float, 4> view_at(const Array&, const Batch&, const Batch::Position&, Index, Index, Index);
template View<bfloat16, 4> view_at(const Array&, const Batch&, const Batch::Position&, Index, Index, Index);
template View<float16, 4> view_at(const Array&, const Batch&, const Batch::Position&, Index, Index, Index);

View<float, 3> values_of_rows(const Array& values, const Batch& batch, const Batch::Position& at, bool has_heads) {
  const int last = batch.rank() - 1;
  Index offset = 0;
  for (int axis = 0; axis < last; ++axis) offset += at[static_cast<std::size_t>(axis)] * values.stride(axis);
  return {values.data<float>() + offset,
          {last >= 0 ? batch.size(last) : 1, has_heads ? values.size(-2) : 1, values.size(-1)},
          {last >= 0 ? values.stride(last) : 0, has_heads ? values.stride(-2) : 0, values.stride(-1)}};
}

ScoreOperands::ScoreOperands(const Call& call, nb::handle q, nb::handle k, nb::handle v, bool grouped, Floats floats)
    : query(call, "query", q, floats), batch(3) {
  if (k.is_valid()) key.emplace(call, "key", k, floats);
  if (v.is_valid()) value.emplace(call, "value", v, floats);
  for (const Array* array : {&std::as_const(query), pointer_to(key), pointer_to(value)}) {
    if (array == nullptr) continue;
    array->require(array->rank() >= 2, " has shape ", *array, ", the minimum is [length, dim]");
    batch.widen(*array);
    has_heads = has_heads || array->rank() >= 3;
  }
  count_heads(grouped);
}

void ScoreOperands::to_float32() {
  query.to_float32();
  if (key) key->to_float32();
  if (value) value->to_float32();
}

void ScoreOperands::count_heads(bool grouped) {
  const Index of_query = inner_size(query, -3), of_key = key ? inner_size(*key, -3) : of_query,
              of_value = value ? inner_size(*value, -3) : of_key;
  const auto require_heads = [&](bool condition, const char* remedy) {
    if (condition) return;
    if (value) query.require(false, " has ", of_query, " heads, key ", of_key, ", value ", of_value, remedy);
    query.require(false, " has ", of_query, " heads, key ", of_key, remedy);
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
  // Broadcast heads are passed to the library as one kv head, which it packs once.
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
  std::vector<Index> scores = shape(), strides(scores.size() + 1);
  scores.push_back(columns);
  broadcast_strides(mask, scores, strides.data(), what);
}

void ScoreOperands::check(const ScoreOptions& options, Index keys) const {
  if (options.mask) check_mask(*options.mask, keys, "the scores, ");
  if (options.mask_bits) check_mask(*options.mask_bits, (keys + 7) / 8, "the scores in bytes of 8 keys, ");
  for_each_option(options.values, [&](const char* name, const auto& member) {
    if constexpr (std::is_same_v<decltype(member), const View<const Index, 1>&>)
      query.call().require(!member || batch.rank() <= 1, python_name(name),
                           " is for [batch, heads, length, dim], here are ", batch.rank(), " batch axes");
  });
}

AttentionOptions ScoreOperands::options_at(const ScoreOptions& options, Index keys, const Batch::Position& at) const {
  AttentionOptions result = options.values;
  const Index rows = query.size(-2);
  const auto& [mask, bits] = std::tie(options.mask, options.mask_bits);
  if (mask && mask->element() == Element::boolean)
    result.mask = view_at<const bool>(*mask, batch, at, heads, rows, keys);
  else if (mask) result.bias = view_at<const float>(*mask, batch, at, heads, rows, keys);
  if (bits) result.mask_bits = view_at<const std::uint8_t>(*bits, batch, at, heads, rows, (keys + 7) / 8);
  return result;
}

void ScoreOperands::require_result_apart(const Result& result, const ScoreOptions& options) const {
  if (batch.rank() <= 1) return;
  std::vector<const Array*> inputs = options.float_arrays();
  inputs.insert(inputs.begin(), {&query, pointer_to(key), pointer_to(value)});
  result.require_apart(inputs);
}

RowResults::RowResults(const Call& call, const Like& like, nb::handle out, const std::vector<Index>& rows,
                       Index columns, bool lse, bool sum, Floats floats) {
  const Like of_rows{like.object, Element::float32};
  if (lse || sum) lse_.emplace(call, of_rows, nb::none(), rows);
  if (sum) sum_.emplace(call, of_rows, nb::none(), rows);
  std::vector<Index> shape = rows;
  shape.push_back(columns);
  out_.emplace(call, like, out, shape, floats);
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
