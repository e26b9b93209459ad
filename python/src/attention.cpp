// scaled_dot_product_attention: PyTorch's shapes and broadcasting, brought to the library's [batch, head, sequence, dim].
#include <headlane/attention.hpp>

#include "batch.hpp"
#include "call.hpp"
#include "functions.hpp"

namespace headlane::python {
namespace {

constexpr const char* function = "scaled_dot_product_attention";

/// Size along one of the last three axes, 1 where the array has no such axis.
Index inner_size(const Array& x, int axis) { return x.rank() < -axis ? 1 : x.size(axis); }

/// Stride along one of them, 0 where the array is broadcast.
Index inner_stride(const Array& x, int axis) { return inner_size(x, axis) == 1 ? 0 : x.stride(axis); }

/// The operands of one call, and the axes that they have in common.
struct Operands {
  Array query, key, value;
  std::optional<Array> mask;
  Batch batch{function, 3};  // the axes before heads, rows and columns
  Index heads = 1, kv_heads = 1;
  bool has_heads;

  Operands(nb::handle q, nb::handle k, nb::handle v, nb::handle attn_mask, bool grouped)
      : query(function, "query", q), key(function, "key", k), value(function, "value", v) {
    if (!attn_mask.is_none()) mask.emplace(function, "attn_mask", attn_mask);
    for (const Array* array : {&query, &key, &value}) {
      array->require_float();
      require(array->rank() >= 2, function, ": ", array->name(), " has shape ", *array, ", the least is [length, dim]");
      batch.widen(*array);
    }
    has_heads = std::max({query.rank(), key.rank(), value.rank()}) >= 3;
    count_heads(grouped);
    if (mask) check_mask();
  }

  [[nodiscard]] std::vector<Index> shape() const {
    std::vector<Index> shape;
    for (int axis = 0; axis < batch.rank(); ++axis) shape.push_back(batch.size(axis));
    if (has_heads) shape.push_back(heads);
    shape.push_back(query.size(-2));
    return shape;
  }

 private:
  void count_heads(bool grouped);
  void check_mask() const;
};

void Operands::count_heads(bool grouped) {
  const Index of_query = inner_size(query, -3), of_key = inner_size(key, -3), of_value = inner_size(value, -3);
  const auto require_heads = [&](bool condition, const char* remedy) {
    require(condition, function, ": query has ", of_query, " heads, key ", of_key, ", value ", of_value, remedy);
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
  kv_heads = inner_stride(key, -3) == 0 && inner_stride(value, -3) == 0 && heads > 0 ? 1 : heads;
}

void Operands::check_mask() const {
  if (!mask->is_bool()) mask->require_float();
  const auto fits = [](Index size, Index wanted) { return size == 1 || size == wanted; };
  std::vector<Index> scores = shape();
  scores.push_back(key.size(-2));
  bool good = mask->rank() <= static_cast<int>(scores.size());
  for (int axis = 1; good && axis <= mask->rank(); ++axis)  // from the right
    good = fits(mask->size(-axis), scores[scores.size() - static_cast<std::size_t>(axis)]);
  require(good, function, ": attn_mask of shape ", *mask, " does not broadcast to the scores, ", scores);
}

/// The library's view of an operand: the last batch axis, heads, rows, columns. The batch axes before it are walked.
template <class T>
View<T, 4> view_of(T* data, const Array& x, const Batch& batch, const Batch::Position& at, Index heads, Index rows,
                   Index columns) {
  const int last = batch.rank() - 1;
  const bool has_batch = last >= 0;
  return {data + batch.offset(x, std::max(0, last), at),
          {has_batch ? batch.size(last) : 1, heads, rows, columns},
          {has_batch ? batch.stride(x, last) : 0, inner_stride(x, -3), inner_stride(x, -2), inner_stride(x, -1)}};
}

/// The log-sum-exp has no columns.
View<float, 3> lse_view(const Array& lse, const Batch& batch, const Batch::Position& at, Index heads, bool has_heads) {
  const int last = batch.rank() - 1;
  Index offset = 0;
  for (int axis = 0; axis < last; ++axis) offset += at[static_cast<std::size_t>(axis)] * lse.stride(axis);
  return {lse.floats() + offset,
          {last >= 0 ? batch.size(last) : 1, heads, lse.size(-1)},
          {last >= 0 ? lse.stride(last) : 0, has_heads ? lse.stride(-2) : 0, lse.stride(-1)}};
}

/// PyTorch's empty tensors have no address, which would mean to the library that there is none.
template <class T>
View<const T, 1> view_of_axis(const T* data, const Array& x) {
  static constexpr T nothing{};
  return {data != nullptr ? data : &nothing, {x.size(0)}, {x.stride(0)}};
}

/// Values for the heads; the library looks at how many.
View<const float, 1> per_head(const std::optional<Array>& values) {
  if (!values) return {};
  values->require_float();
  require(values->rank() == 1, function, ": ", values->name(), " has shape ", *values, ", wanted [heads]");
  return view_of_axis<float>(values->floats(), *values);
}

/// Lengths are those of one batch axis; without one there is a batch of one.
View<const Index, 1> per_batch(const std::optional<Array>& lengths, const Operands& operands) {
  if (!lengths) return {};
  lengths->require_int64();
  require(operands.batch.rank() <= 1, function, ": ", lengths->name(), " is for [batch, heads, length, dim], here are ",
          operands.batch.rank(), " batch axes");
  require(lengths->rank() == 1, function, ": ", lengths->name(), " has shape ", *lengths, ", wanted [batch]");
  return view_of_axis<Index>(lengths->integers(), *lengths);
}

void run(const Operands& of, const Array& out, const Array* lse, AttentionOptions options) {
  const Index rows = of.query.size(-2), keys = of.key.size(-2), dim = of.query.size(-1), value_dim = of.value.size(-1);
  of.batch.for_each(std::max(0, of.batch.rank() - 1), [&](const Batch::Position& at) {
    const auto view = [&](const Array& x, Index heads, Index length, Index columns) {
      return view_of(x.floats(), x, of.batch, at, heads, length, columns);
    };
    if (of.mask && of.mask->is_bool())
      options.mask = view_of(of.mask->bools(), *of.mask, of.batch, at, of.heads, rows, keys);
    else if (of.mask)
      options.bias = view_of<const float>(of.mask->floats(), *of.mask, of.batch, at, of.heads, rows, keys);
    if (lse != nullptr) options.lse = lse_view(*lse, of.batch, at, of.heads, of.has_heads);
    attention(view(of.query, of.heads, rows, dim), view(of.key, of.kv_heads, keys, of.key.size(-1)),
              view(of.value, of.kv_heads, of.value.size(-2), value_dim), view(out, of.heads, rows, value_dim), options);
  });
}

}  // namespace

nb::object scaled_dot_product_attention(nb::handle query, nb::handle key, nb::handle value, nb::handle attn_mask,
                                        double dropout_p, bool is_causal, std::optional<float> scale, bool enable_gqa,
                                        Index causal_offset, float softcap, Index window_left, Index window_right,
                                        nb::handle key_lengths, nb::handle query_lengths, nb::handle alibi_slopes,
                                        nb::handle sinks, bool return_lse, nb::handle out,
                                        std::optional<int> num_threads) {
  require(dropout_p == 0, function, ": dropout_p is ", dropout_p, "; headlane has no dropout, pass 0");
  const Operands operands(query, key, value, attn_mask, enable_gqa);
  std::optional<Array> of_keys, of_queries, slopes, of_sinks;
  if (!key_lengths.is_none()) of_keys.emplace(function, "key_lengths", key_lengths);
  if (!query_lengths.is_none()) of_queries.emplace(function, "query_lengths", query_lengths);
  if (!alibi_slopes.is_none()) slopes.emplace(function, "alibi_slopes", alibi_slopes);
  if (!sinks.is_none()) of_sinks.emplace(function, "sinks", sinks);
  std::vector<Index> shape = operands.shape();
  std::optional<Result> lse;
  if (return_lse) lse.emplace(function, query, nb::none(), shape);
  shape.push_back(operands.value.size(-1));
  const Result result(function, query, out, shape);
  const AttentionOptions options{.scale = scale,
                                 .causal = is_causal,
                                 .causal_offset = causal_offset,
                                 .softcap = softcap,
                                 .window_left = window_left,
                                 .window_right = window_right,
                                 .key_lengths = per_batch(of_keys, operands),
                                 .query_lengths = per_batch(of_queries, operands),
                                 .alibi_slopes = per_head(slopes),
                                 .sinks = per_head(of_sinks),
                                 .num_threads = threads_of(function, num_threads)};
  if (operands.batch.rank() > 1) {  // the library is called several times
    const Array* mask = operands.mask && !operands.mask->is_bool() ? &*operands.mask : nullptr;
    require_apart(function, result.array(),
                  {&operands.query, &operands.key, &operands.value, mask, slopes ? &*slopes : nullptr,
                   of_sinks ? &*of_sinks : nullptr});
  }
  compute(function, [&] { run(operands, result.array(), lse ? &lse->array() : nullptr, options); });
  if (!lse) return result.object();
  return nb::make_tuple(result.object(), lse->object());
}

}  // namespace headlane::python
