// The class RowProgram in Python, and its operations.
#include "core/define.hpp"

#include "core/dtype.hpp"
#include "core/functions.hpp"
#include "gemm/products.hpp"
#include "rows/program.hpp"

#include <limits>
#include <nanobind/stl/tuple.h>
#include <tuple>

namespace headlane::python {
namespace {

constexpr const char* name = "RowProgram";

using Kind = Operation::Kind;

Place add_linear(RowProgram& self, Place x, nb::handle matrix, Place bias, nb::handle activation, Place residual,
                 nb::handle activations) {
  const Call call(name);
  return self.add(call,
                  {.kind = Kind::linear,
                   .x = x,
                   .residual = residual,
                   .bias = bias,
                   .activation = activation_named(call, activation),
                   .activations = activations_named(call, activations)},
                  {matrix});
}

Place add_gated(RowProgram& self, Place x, nb::handle gate, nb::handle up, Place gate_bias, Place up_bias,
                nb::handle activation, nb::handle activations) {
  const Call call(name);
  return self.add(call,
                  {.kind = Kind::gated,
                   .x = x,
                   .bias = gate_bias,
                   .second = up_bias,
                   .activation = activation_named(call, activation),
                   .activations = activations_named(call, activations)},
                  {gate, up});
}

Place add_norm(RowProgram& self, bool centred, Place x, Place weight, Place bias, float eps, Place residual,
               Index head_dim) {
  const Call call(name);
  call.require(head_dim >= 0, "head_dim is ", head_dim);
  call.require(head_dim == 0 || residual == absent, "norms of heads have no residual");
  return self.add(call, {.kind = Kind::norm,
                         .x = x,
                         .residual = residual,
                         .bias = bias,
                         .second = weight,
                         .centred = centred,
                         .eps = eps,
                         .head_dim = head_dim});
}

Place add_activation(RowProgram& self, nb::handle activation, Place x) {
  const Call call(name);
  return self.add(call, {.kind = Kind::activation, .x = x, .activation = activation_named(call, activation)});
}

Place add_scale(RowProgram& self, Place x, float factor) {
  return self.add(Call(name), {.kind = Kind::scale, .x = x, .factor = factor});
}

template <Kind kind>
Place add_pair(RowProgram& self, Place x, Place other) {
  return self.add(Call(name), {.kind = kind, .x = x, .residual = other});
}

Place add_weigh(RowProgram& self, Place x, Place factors) {
  const Call call(name);
  call.require(factors >= 0, "there is no vector ", factors);
  return self.add(call, {.kind = Kind::weigh, .x = x, .bias = factors});
}

Place add_columns(RowProgram& self, Place x, Index begin, Index end, Index group) {
  const Call call(name);
  call.require(begin >= 0 && begin <= end, "columns begin at ", begin, " and end at ", end);
  call.require(group == 0 || group >= end, "a group of ", group, " columns, of which some end at ", end);
  return self.add(call, {.kind = Kind::columns, .x = x, .begin = begin, .end = end, .group = group});
}

Place add_product_of_heads(RowProgram& self, Place x, Place other, Index head_dim) {
  const Call call(name);
  call.require(head_dim > 0 && head_dim <= std::numeric_limits<int>::max(), "head_dim is ", head_dim);
  return self.add(call, {.kind = Kind::product, .x = x, .residual = other, .head_dim = head_dim});
}

/// Each head of x, of head_dim numbers, followed by that of `other`, of other_dim numbers.
Place add_join(RowProgram& self, Place x, Place other, Index head_dim, Index other_dim) {
  const Call call(name);
  constexpr Index most = std::numeric_limits<int>::max();
  for (const Index dim : {head_dim, other_dim}) call.require(dim > 0 && dim <= most, "a size is ", dim);
  return self.add(call, {.kind = Kind::join, .x = x, .residual = other, .head_dim = head_dim, .group = other_dim});
}

RotaryPairs pairs_named(const Call& call, nb::handle given) {
  using enum RotaryPairs;
  const std::string text = call.text("pairs", given);
  if (text == "halves") return halves;
  if (text == "halves_backwards") return halves_backwards;
  if (text == "neighbours") return neighbours;
  if (text == "neighbours_by_pair") return neighbours_by_pair;
  if (text == "neighbours_by_half") return neighbours_by_half;
  call.require(text == "neighbours_to_halves", "there are no pairs '", text, "'");
  return neighbours_to_halves;
}

Place add_rotary(RowProgram& self, Place x, Place cosines, Place sines, Index head_dim, Index rotary_dim,
                 nb::handle pairs, bool in_float32) {
  const Call call(name);
  call.require(head_dim > 0, "head_dim is ", head_dim);
  call.require(rotary_dim >= 0 && rotary_dim <= head_dim && rotary_dim % 2 == 0, "rotary_dim is ", rotary_dim);
  for (const Place table : {cosines, sines}) call.require(table >= 0, "there is no vector ", table);
  return self.add(call, {.kind = Kind::rotary,
                         .x = x,
                         .bias = cosines,
                         .second = sines,
                         .head_dim = head_dim,
                         .rotary_dim = rotary_dim,
                         .pairs = pairs_named(call, pairs),
                         .in_float32 = in_float32});
}

Place add_attention(RowProgram& self, Place queries, Place keys, Place values, Index heads) {
  const Call call(name);
  call.require(heads > 0, "heads is ", heads);
  return self.add(call, {.kind = Kind::attention, .x = queries, .keys = keys, .values = values, .heads = heads});
}

using Columns = std::tuple<Index, Index, Index>;

Place add_attention_with_cache(RowProgram& self, Place queries, Place keys, Place values, const Columns& columns,
                               Index heads, Index kv_heads, Index head_dim, Index value_dim) {
  const Call call(name);
  constexpr Index most = std::numeric_limits<int>::max();
  for (const Index size : {heads, kv_heads, head_dim, value_dim})
    call.require(size > 0 && size <= most, "a size is ", size);
  call.require(heads % kv_heads == 0, heads, " heads are no multiple of ", kv_heads);
  const auto [of_queries, of_keys, of_values] = columns;
  for (const Index column : {of_queries, of_keys, of_values})
    call.require(column >= 0 && column <= most, "a column is ", column);
  return self.add(call, {.kind = Kind::attention,
                         .x = queries,
                         .keys = keys,
                         .values = values,
                         .heads = heads,
                         .head_dim = head_dim,
                         .kv_heads = kv_heads,
                         .value_dim = value_dim,
                         .columns = {of_queries, of_keys, of_values}});
}

}  // namespace

void add_row_program(nb::module_& module) {
  nb::class_<RowProgram> program(module, name);
  program.def(nb::init<Place>(), nb::arg("inputs"));
  define(program, "linear", &add_linear, "x", "matrix", "bias", "activation", "residual", "activations");
  define(program, "gated", &add_gated, "x", "gate", "up", "gate_bias", "up_bias", "activation", "activations");
  define(program, "norm", &add_norm, "centred", "x", "weight", "bias", "eps", "residual", "head_dim");
  define(program, "activate", &add_activation, "activation", "x");
  define(program, "columns", &add_columns, "x", "begin", "end", "group");
  define(program, "scale", &add_scale, "x", "factor");
  define(program, "weigh", &add_weigh, "x", "factors");
  define(program, "add", &add_pair<Kind::sum>, "x", "other");
  define(program, "multiply", &add_pair<Kind::product>, "x", "other");
  define(program, "multiply_heads", &add_product_of_heads, "x", "other", "head_dim");
  define(program, "join", &add_join, "x", "other", "head_dim", "other_dim");
  define(program, "rotary", &add_rotary, "x", "cosines", "sines", "head_dim", "rotary_dim", "pairs", "in_float32");
  define(program, "attention", &add_attention, "queries", "keys", "values", "heads");
  define(program, "attention_with_cache", &add_attention_with_cache, "queries", "keys", "values", "columns", "heads",
         "kv_heads", "head_dim", "value_dim");
  define(program, "add_output", [](RowProgram& self, Place value) { self.add_output(Call(name), value); }, "value");
  define(program, "run", &RowProgram::run, "values", "vectors", "attentions", "num_threads");
}

}  // namespace headlane::python
