// The class RowProgram in Python, and its operations.
#include "core/define.hpp"

#include "core/dtype.hpp"
#include "core/functions.hpp"
#include "gemm/products.hpp"
#include "rows/program.hpp"

#include <headlane/limits.hpp>

#include <cmath>
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

constexpr Index largest_size = std::numeric_limits<int>::max();

void require_sizes(const Call& call, std::initializer_list<Index> sizes) {
  for (const Index size : sizes) call.require(size > 0 && size <= largest_size, "a size is ", size);
}

/// Each head of x, of head_dim numbers, followed by that of `other`, of other_dim numbers.
Place add_join(RowProgram& self, Place x, Place other, Index head_dim, Index other_dim) {
  const Call call(name);
  require_sizes(call, {head_dim, other_dim});
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

/// The first columns of queries, keys and values.
std::array<Index, 3> first_columns(const Call& call, const Columns& given) {
  const auto [of_queries, of_keys, of_values] = given;
  const std::array columns{of_queries, of_keys, of_values};
  for (const Index column : columns) call.require(column >= 0 && column <= largest_size, "a column is ", column);
  return columns;
}

Place add_attention_with_cache(RowProgram& self, Place queries, Place keys, Place values, const Columns& columns,
                               Index heads, Index kv_heads, Index head_dim, Index value_dim) {
  const Call call(name);
  require_sizes(call, {heads, kv_heads, head_dim, value_dim});
  call.require(heads % kv_heads == 0, heads, " heads are no multiple of ", kv_heads);
  return self.add(call, {.kind = Kind::attention,
                         .x = queries,
                         .keys = keys,
                         .values = values,
                         .heads = heads,
                         .head_dim = head_dim,
                         .kv_heads = kv_heads,
                         .value_dim = value_dim,
                         .columns = first_columns(call, columns)});
}

Place add_gated_norm(RowProgram& self, Place x, Place gate, Place weight, float eps, nb::handle activation,
                     Index head_dim, bool gate_first) {
  const Call call(name);
  call.require(head_dim >= 0, "head_dim is ", head_dim);
  const Activation named = activation_named(call, activation);
  call.require(named != Activation::none, "a gated norm has no activation");
  return self.add(call, {.kind = Kind::gated_norm,
                         .x = x,
                         .residual = gate,
                         .second = weight,
                         .activation = named,
                         .gate_first = gate_first,
                         .eps = eps,
                         .head_dim = head_dim});
}

Place add_convolve(RowProgram& self, Place x, Place weight, Place bias, nb::handle activation) {
  const Call call(name);
  call.require(weight >= 0, "there is no vector ", weight);
  return self.add(call, {.kind = Kind::convolve,
                         .x = x,
                         .bias = bias,
                         .second = weight,
                         .activation = activation_named(call, activation)});
}

void require_heads(const Call& call, Index heads, Index kv_heads, Index head_dim, Index value_dim) {
  require_sizes(call, {heads, kv_heads, head_dim, value_dim});
  call.require(heads % kv_heads == 0, heads, " heads are no multiple of ", kv_heads);
  for (const Index dim : {head_dim, value_dim})
    call.require(dim <= max_head_dim, "a head has ", dim, " elements, at most ", max_head_dim, " are possible");
}

/// Normalised queries and keys of kv_heads heads; (decay, beta) and (a_log, dt_bias) are those of
/// the delta rule and its gate.
Place add_gated_attention(RowProgram& self, const std::tuple<Place, Place, Place>& inputs, const Columns& columns,
                          const std::tuple<Place, Place>& gates, const std::tuple<Place, Place>& vectors, float eps,
                          Index heads, Index kv_heads, Index head_dim, Index value_dim) {
  const Call call(name);
  require_heads(call, heads, kv_heads, head_dim, value_dim);
  const auto [a_log, dt_bias] = vectors;
  for (const Place vector : {a_log, dt_bias}) call.require(vector >= 0, "there is no vector ", vector);
  return self.add(call, {.kind = Kind::delta,
                         .x = std::get<0>(inputs),
                         .residual = std::get<0>(gates),
                         .keys = std::get<1>(inputs),
                         .values = std::get<2>(inputs),
                         .beta = std::get<1>(gates),
                         .bias = dt_bias,
                         .second = a_log,
                         .eps = eps,
                         .heads = heads,
                         .head_dim = head_dim,
                         .kv_heads = kv_heads,
                         .value_dim = value_dim,
                         .columns = first_columns(call, columns)});
}

/// Mamba-2: (C, B, x), of C and B `groups` heads; (A_log, dt_bias, D), of which D may be absent;
/// the least step and the largest one.
Place add_scan(RowProgram& self, const std::tuple<Place, Place, Place>& inputs, const Columns& columns, Place dt,
               const std::tuple<Place, Place, Place>& vectors, const std::tuple<float, float>& limits, Index heads,
               Index groups, Index state_size, Index value_dim) {
  const Call call(name);
  require_heads(call, heads, groups, state_size, value_dim);
  const auto [a_log, dt_bias, skip] = vectors;
  const auto [least, most] = limits;
  call.require(least >= 0 && least <= most && std::isfinite(least), "steps from ", least, " to ", most);
  for (const Place vector : {a_log, dt_bias}) call.require(vector >= 0, "there is no vector ", vector);
  return self.add(call, {.kind = Kind::scan,
                         .x = std::get<0>(inputs),
                         .residual = dt,
                         .keys = std::get<1>(inputs),
                         .values = std::get<2>(inputs),
                         .bias = dt_bias,
                         .second = a_log,
                         .third = skip,
                         .min_step = least,
                         .max_step = most,
                         .heads = heads,
                         .head_dim = state_size,
                         .kv_heads = groups,
                         .value_dim = value_dim,
                         .columns = first_columns(call, columns)});
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
  define(program, "gated_norm", &add_gated_norm, "x", "gate", "weight", "eps", "activation", "head_dim", "gate_first");
  define(program, "convolve", &add_convolve, "x", "weight", "bias", "activation");
  define(program, "linear_attention", &add_gated_attention, "inputs", "columns", "gates", "vectors", "eps", "heads",
         "kv_heads", "head_dim", "value_dim");
  define(program, "scan", &add_scan, "inputs", "columns", "dt", "vectors", "limits", "heads", "groups", "state_size",
         "head_dim");
  define(program, "add_output", [](RowProgram& self, Place value) { self.add_output(Call(name), value); }, "value");
  define(program, "run", &RowProgram::run, "values", "vectors", "attentions", "states", "num_threads");
}

}  // namespace headlane::python
