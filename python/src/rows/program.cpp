// RowProgram: checks its operations and the arguments of a run, and runs them.
#include "rows/program.hpp"

#include "attention/options.hpp"
#include "core/result.hpp"
#include "gemm/products.hpp"
#include "rows/run.hpp"

#include <headlane/limits.hpp>

#include <deque>
#include <nanobind/stl/tuple.h>
#include <tuple>

namespace headlane::python {
namespace {

template <class Wanted>
Arrays arrays_of(const Call& call, const char* name, const nb::list& objects, Wanted wanted,
                 Access access = Access::read) {
  auto arrays = std::make_unique<std::optional<Array>[]>(objects.size());
  for (std::size_t i = 0; i < objects.size(); ++i)
    if (const nb::handle object = objects[i]; !object.is_none()) arrays[i].emplace(call, name, object, wanted, access);
  return arrays;
}

bool is_dense(const Array& array) {
  Index step = 1;
  bool dense = true;
  for (int axis = array.rank(); axis-- > 0; step *= array.size(axis))
    dense = dense && (array.size(axis) == 1 || array.stride(axis) == step);
  return dense || step == 0;  // without elements
}

/// Whether a cache has the keys and values of these sequences, and room for so many more.
bool fits(const Operation& operation, const CacheMemory& cache, const Array& sequences, Index appended) {
  const auto has = [&](const Array& memory, Index dim) {
    return memory.rank() == 4 && memory.element() == sequences.element() && memory.size(0) == sequences.size(0) &&
           memory.size(1) == operation.kv_heads && memory.size(3) == dim && (dim == 1 || memory.stride(3) == 1) &&
           cache.used >= 0 && cache.used <= memory.size(2) - appended;
  };
  return has(cache.keys, operation.head_dim) && has(cache.values, operation.value_dim);
}

/// Whether a state has the sizes that an operation on these sequences needs, and memory for each
/// element.
bool state_fits(const Operation& operation, const Array& state, const Array& sequences, const Arrays& vectors,
                Index width) {
  for (int axis = 0; axis < state.rank(); ++axis)
    if (state.size(axis) > 1 && state.stride(axis) == 0) return false;
  if (operation.is_linear_attention()) {
    Index rows = operation.head_dim, columns = operation.value_dim;
    if (operation.kind == Operation::Kind::scan) std::swap(rows, columns);
    return state.shape() == std::vector<Index>{sequences.size(0), operation.heads, rows, columns} &&
           state.element() == Element::float32;
  }
  const Array& weight = *vectors[static_cast<std::size_t>(operation.second)];
  return state.shape() == std::vector<Index>{sequences.size(0), width, weight.size(1)} &&
         state.element() == sequences.element();
}

/// The width of the result of an operation with a state; -1 if something does not fit.
Index width_with_state(const Operation& o, const std::vector<Index>& widths, const Arrays& vectors) {
  const auto width_of = [&](Place value) { return widths[static_cast<std::size_t>(value)]; };
  const Array* const second = pointer_to(vectors[static_cast<std::size_t>(o.second)]);
  const Array* const bias = o.bias == absent ? nullptr : pointer_to(vectors[static_cast<std::size_t>(o.bias)]);
  const auto has = [](const Array* vector, Index size) { return vector->rank() == 1 && vector->size(0) == size; };
  if (o.kind == Operation::Kind::convolve) {
    const Index channels = width_of(o.x);
    const bool fit = second != nullptr && second->rank() == 2 && second->size(0) == channels && second->size(1) >= 1 &&
                     second->size(1) <= max_convolution_width && (bias == nullptr || has(bias, channels));
    return fit ? channels : -1;
  }
  const Index decays = width_of(o.residual), heads = o.heads, rows = heads * o.head_dim;
  bool fit = second != nullptr && bias != nullptr && has(second, heads);
  if (o.kind == Operation::Kind::scan) {
    const Array* const skip = o.third == absent ? nullptr : pointer_to(vectors[static_cast<std::size_t>(o.third)]);
    fit = fit && decays == heads && has(bias, heads) && (skip == nullptr || has(skip, heads));
  } else {
    fit = fit && width_of(o.beta) == heads && (decays == heads || decays == rows) &&
          (has(bias, heads) || (decays == rows && has(bias, rows)));
  }
  const Place inputs[] = {o.x, o.keys, o.values};
  const Index read[] = {o.kv_heads * o.head_dim, o.kv_heads * o.head_dim, heads * o.value_dim};
  for (std::size_t i = 0; i < 3; ++i) fit = fit && o.columns[i] + read[i] <= width_of(inputs[i]);
  return fit ? heads * o.value_dim : -1;
}

/// The arguments of all attention operations of a run. Borrows their arrays.
struct Attentions {
  std::deque<ScoreOptions> options;
  std::deque<CacheMemory> caches;
  std::vector<AttentionArguments> all;

  /// Adds those of the next operation; returns false if its cache does not fit.
  bool add(const Call& call, const Operation& operation, nb::handle attention, const Array& sequences,
           nb::handle num_threads) {
    const auto [mask, causal, scale, others, memory] =
        nb::cast<std::tuple<nb::object, bool, nb::object, nb::object, nb::object>>(attention);
    const Index batch = sequences.size(0), length = sequences.size(1);
    AttentionArguments& made = all.emplace_back();
    Index keys = length;
    if (operation.has_cache()) {
      const Index appended = operation.keys == absent ? 0 : length;
      call.require(!memory.is_none(), "an attention with a cache is given none");
      const auto [of_keys, of_values, used] = nb::cast<std::tuple<nb::object, nb::object, Index>>(memory);
      made.cache = &caches.emplace_back(call, of_keys, of_values, used);
      if (!fits(operation, *made.cache, sequences, appended)) return false;
      keys = used + appended;
    }
    ScoreOptions& each = options.emplace_back(call, mask, others, num_threads);
    each.values.causal = causal;
    if (!scale.is_none()) each.values.scale = call.float32("scale", scale);
    made.options = each.for_scores(batch, operation.heads, length, keys);
    return true;
  }
};

/// Whether a table has a row for each position of a value, for all sequences or for each of them.
bool has_positions(const std::optional<Array>& table, const Array& value) {
  return table && table->rank() == 3 && value.rank() == 3 && table->size(1) == value.size(1) &&
         (table->size(0) == 1 || table->size(0) == value.size(0)) && (table->stride(2) == 1 || table->size(2) == 1);
}

/// Whether the tables of an operation fit a value: the cosines and sines of a rotary have as many
/// numbers for a position as are turned, or half as many; the factors of weigh have one.
bool tables_fit(const Operation& operation, const Array& value, const Arrays& vectors) {
  const std::optional<Array>& first = vectors[static_cast<std::size_t>(operation.bias)];
  if (!has_positions(first, value)) return false;
  const Index numbers = first->size(2);
  if (operation.kind == Operation::Kind::weigh) return numbers == 1;
  const std::optional<Array>& sines = vectors[static_cast<std::size_t>(operation.second)];
  if (!has_positions(sines, value) || sines->size(2) != numbers) return false;
  const bool has_half = operation.pairs == RotaryPairs::neighbours_by_half;
  const Index most = operation.head_dim / (has_half ? 2 : 1), turned = has_half ? 2 * numbers : numbers;
  return turned % 2 == 0 && numbers <= most && (operation.rotary_dim == 0 || operation.rotary_dim == turned);
}

}  // namespace

Place RowProgram::add(const Call& call, Operation operation, const std::vector<nb::handle>& matrices) {
  const auto require_value = [&](Place value, Place least) {
    call.require(value >= least && value < end(), "there is no value ", value);
  };
  require_value(operation.x, 0);
  using Kind = Operation::Kind;
  const bool is_of_two = operation.kind == Kind::sum || operation.kind == Kind::product ||
                         operation.kind == Kind::join || operation.kind == Kind::gated_norm ||
                         operation.is_linear_attention();
  require_value(operation.residual, is_of_two ? 0 : absent);
  const bool has_keys = operation.keys != absent || operation.values != absent;
  const bool needs_keys =
      operation.has_cache() ? has_keys : operation.kind == Kind::attention || operation.is_linear_attention();
  for (const Place value : {operation.keys, operation.values}) require_value(value, needs_keys ? 0 : absent);
  require_value(operation.beta, operation.kind == Kind::delta ? 0 : absent);
  for (const Place vector : {operation.bias, operation.second, operation.third})
    call.require(vector >= absent, "there is no vector ", vector);
  vectors_ = std::max({vectors_, operation.bias + 1, operation.second + 1, operation.third + 1});
  if (operation.has_state()) operation.attention = states_++;
  else if (!operation.is_of_rows()) operation.attention = attentions_++;
  for (const nb::handle matrix : matrices) {
    const auto* found = call.instance<PackedMatrix>("matrix", matrix);
    if (found == nullptr) call.refuse_type("matrix", matrix, "a PackedMatrix");
    require_stored_for(call, operation.activations, "matrix", found);
    (operation.matrix == nullptr ? operation.matrix : operation.up) = found;
    matrices_.push_back(nb::borrow(matrix));
  }
  operations_.push_back(operation);
  return end() - 1;
}

/// The widths of all values; none if something does not fit.
std::vector<Index> RowProgram::widths_of(const Arrays& values, const Arrays& vectors) const {
  std::vector<Index> widths;
  bool fit = !has_sequences() || values[0]->rank() == 3;
  for (Place i = 0; i < inputs_; ++i) {
    const Array& value = *values[static_cast<std::size_t>(i)];
    fit = fit && value.rank() > 0 && value.rank() == values[0]->rank() && value.element() == values[0]->element() &&
          is_dense(value);
    for (int axis = 0; fit && axis + 1 < value.rank(); ++axis) fit = value.size(axis) == values[0]->size(axis);
    widths.push_back(fit ? value.size(-1) : 0);
  }
  const auto width_of = [&](Place value) { return widths[static_cast<std::size_t>(value)]; };
  const auto require_vector = [&](Place place, Index width) {
    if (place == absent) return;
    const std::optional<Array>& vector = vectors[static_cast<std::size_t>(place)];
    fit = fit && (!vector || (vector->rank() == 1 && vector->size(0) == width));
  };
  for (const Operation& operation : operations_) {
    if (operation.has_state()) {
      widths.push_back(width_with_state(operation, widths, vectors));
      fit = fit && widths.back() >= 0;
      continue;
    }
    Index width = operation.matrix != nullptr ? operation.matrix->columns() : width_of(operation.x);
    for (const PackedMatrix* matrix : {operation.matrix, operation.up})
      fit = fit && (matrix == nullptr || (matrix->rows() == width_of(operation.x) && matrix->columns() == width));
    const Index head_dim = operation.head_dim;
    const bool joins = operation.kind == Operation::Kind::join;
    const bool by_heads = operation.kind == Operation::Kind::product && head_dim > 0;
    fit = fit &&
          (operation.residual == absent || joins || width_of(operation.residual) * (by_heads ? head_dim : 1) == width);
    if (operation.has_tables()) fit = fit && tables_fit(operation, *values[0], vectors);
    else
      for (const Place vector : {operation.bias, operation.second})
        require_vector(vector, head_dim > 0 && !operation.gate_first ? head_dim : width);
    if (operation.kind == Operation::Kind::columns) {
      const Index group = operation.group > 0 ? operation.group : width;
      fit = fit && operation.end <= group && (group == 0 || width % group == 0);
      width = group > 0 ? width / group * (operation.end - operation.begin) : 0;
    }
    fit = fit && (head_dim == 0 || operation.has_cache() || width % head_dim == 0);
    if (joins) {
      const Index others = width / head_dim * operation.group, given = width_of(operation.residual);
      fit = fit && (given == others || given == operation.group);
      width += others;
    }
    if (operation.has_cache()) {
      const Place inputs[] = {operation.x, operation.keys, operation.values};
      const Index widths_read[] = {operation.heads * head_dim, operation.kv_heads * head_dim,
                                   operation.kv_heads * operation.value_dim};
      for (std::size_t i = 0; i < 3; ++i)
        fit = fit && (inputs[i] == absent || operation.columns[i] + widths_read[i] <= width_of(inputs[i]));
      width = operation.heads * operation.value_dim;
    } else if (!operation.is_of_rows()) {
      const Index dim = width / operation.heads, kv_heads = width_of(operation.keys) / std::max<Index>(dim, 1);
      width = operation.heads * (width_of(operation.values) / std::max<Index>(kv_heads, 1));
    }
    widths.push_back(width);
  }
  return fit ? widths : std::vector<Index>();
}

nb::object RowProgram::run(const nb::list& values, const nb::list& vectors, const nb::list& attentions,
                           const nb::list& states, nb::handle num_threads) const {
  const Call call("RowProgram.run");
  const auto require_count = [&](const char* what, const nb::list& list, Place wanted) {
    call.require(static_cast<Place>(list.size()) == wanted, "there are ", list.size(), " ", what, ", wanted: ", wanted);
  };
  require_count("values", values, std::max(inputs_, 1));
  require_count("vectors", vectors, vectors_);
  require_count("attentions", attentions, attentions_);
  require_count("states", states, states_);
  const Arrays given = arrays_of(call, "values", values, Floats());
  for (Place i = 0; i < inputs_; ++i)
    call.require(given[static_cast<std::size_t>(i)].has_value(), "value ", i, " is None");
  const Arrays of_vectors = arrays_of(call, "vectors", vectors, Element::float32);
  const std::vector<Index> widths = widths_of(given, of_vectors);
  if (widths.empty()) return nb::none();
  std::vector<Index> shape = given[0]->shape();
  Index rows = 1;
  for (std::size_t axis = 0; axis + 1 < shape.size(); ++axis) rows *= shape[axis];
  const Index length = has_sequences() ? shape[1] : 1;

  Attentions of_attentions;
  const Arrays of_states = arrays_of(call, "states", states, Floats(), Access::update);
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    const Operation& operation = operations_[i];
    const auto number = static_cast<std::size_t>(operation.attention);
    if (operation.is_of_rows()) continue;
    const bool fits = operation.has_state()
                          ? !of_states[number] || state_fits(operation, *of_states[number], *given[0], of_vectors,
                                                             widths[static_cast<std::size_t>(inputs_) + i])
                          : of_attentions.add(call, operation, attentions[number], *given[0], num_threads);
    if (!fits) return nb::none();
  }
  const int threads = call.threads(num_threads);
  std::deque<Result> results;
  nb::list made;
  for (const Place output : outputs_) {
    shape.back() = widths[static_cast<std::size_t>(output)];
    made.append(results.emplace_back(call, given[0]->like(), nb::none(), shape, Floats()).object());
  }
  const auto compute = [&]<class T>(T) {
    Run<T> run(operations_, widths, of_vectors, of_attentions.all, of_states, threads);
    for (Place i = 0; i < inputs_; ++i) run.set(i, *given[static_cast<std::size_t>(i)]);
    for (std::size_t i = 0; i < outputs_.size(); ++i) run.set(outputs_[i], results[i].array());
    run.compute(length == 0 ? 0 : rows / length, length);
  };
  call.compute([&] {
    if (given[0]->element() == Element::bfloat16) compute(bfloat16());
    else if (given[0]->element() == Element::float16) compute(float16());
    else compute(float());
  });
  for (const nb::handle state : states)
    if (!state.is_none()) announce_write(state);
  return made;
}

}  // namespace headlane::python
