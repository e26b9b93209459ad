// RowProgram: operations on rows that follow each other, as one call: nothing of Python is between
// them.
#include "attention/options.hpp"
#include "core/define.hpp"
#include "core/dtype.hpp"
#include "core/functions.hpp"
#include "core/result.hpp"
#include "gemm/products.hpp"
#include "rows/run.hpp"

#include <deque>
#include <nanobind/stl/tuple.h>
#include <tuple>

namespace headlane::python {
namespace {

template <class Wanted>
Arrays arrays_of(const Call& call, const char* name, const nb::list& objects, Wanted wanted) {
  auto arrays = std::make_unique<std::optional<Array>[]>(objects.size());
  for (std::size_t i = 0; i < objects.size(); ++i)
    if (const nb::handle object = objects[i]; !object.is_none()) arrays[i].emplace(call, name, object, wanted);
  return arrays;
}

bool is_dense(const Array& array) {
  Index step = 1;
  bool dense = true;
  for (int axis = array.rank(); axis-- > 0; step *= array.size(axis))
    dense = dense && (array.size(axis) == 1 || array.stride(axis) == step);
  return dense || step == 0;  // without elements
}

/// It does not change once it runs: any number of threads may run it at the same time.
class RowProgram {
 public:
  explicit RowProgram(Place inputs) : inputs_(inputs) {}

  /// Adds an operation, and returns the number of its result. The program keeps its matrices.
  Place add(const Call& call, Operation operation, const std::vector<nb::handle>& matrices = {});

  /// Makes the result of an operation one of those that a run returns, in the order of these calls.
  void add_output(const Call& call, Place value) {
    call.require(value >= inputs_ && value < end(), "value ", value, " is not the result of an operation");
    outputs_.push_back(value);
  }

  /// values [..., width], [batch, length, width] for attention and rotary: dense. vectors: of any
  /// floating-point type, or None; tables [batch or 1, length, head_dim]. attentions: for each of
  /// them (mask, causal, scale, options). Returns the outputs; None if values differ in type or
  /// rows, or a size is not the one that an operation needs.
  [[nodiscard]] nb::object run(const nb::list& values, const nb::list& vectors, const nb::list& attentions,
                               nb::handle num_threads) const;

 private:
  [[nodiscard]] Place end() const { return inputs_ + static_cast<Place>(operations_.size()); }
  [[nodiscard]] std::vector<Index> widths_of(const Arrays& values, const Arrays& vectors) const;

  Place inputs_, vectors_ = 0, attentions_ = 0;
  std::vector<Operation> operations_;
  std::vector<Place> outputs_;
  std::vector<nb::object> matrices_;
};

Place RowProgram::add(const Call& call, Operation operation, const std::vector<nb::handle>& matrices) {
  const auto require_value = [&](Place value, Place least) {
    call.require(value >= least && value < end(), "there is no value ", value);
  };
  require_value(operation.x, 0);
  const bool is_of_two = operation.kind == Operation::Kind::sum || operation.kind == Operation::Kind::product;
  require_value(operation.residual, is_of_two ? 0 : absent);
  for (const Place value : {operation.keys, operation.values})
    require_value(value, operation.is_of_rows() ? absent : 0);
  for (const Place vector : {operation.bias, operation.second})
    call.require(vector >= absent, "there is no vector ", vector);
  vectors_ = std::max({vectors_, operation.bias + 1, operation.second + 1});
  if (!operation.is_of_rows()) operation.options = attentions_++;
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
  bool fit = attentions_ == 0 || values[0]->rank() == 3;
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
  const auto require_table = [&](Place place, Index head_dim) {
    const std::optional<Array>& table = vectors[static_cast<std::size_t>(place)];
    const Array& value = *values[0];
    fit = fit && table && table->rank() == 3 && value.rank() == 3 && table->size(1) == value.size(1) &&
          (table->size(0) == 1 || table->size(0) == value.size(0)) && table->size(2) == head_dim &&
          table->stride(2) == 1;
  };
  for (const Operation& operation : operations_) {
    Index width = operation.matrix != nullptr ? operation.matrix->columns() : width_of(operation.x);
    for (const PackedMatrix* matrix : {operation.matrix, operation.up})
      fit = fit && (matrix == nullptr || (matrix->rows() == width_of(operation.x) && matrix->columns() == width));
    fit = fit && (operation.residual == absent || width_of(operation.residual) == width);
    const Index head_dim = operation.head_dim;
    for (const Place vector : {operation.bias, operation.second})
      if (operation.kind == Operation::Kind::rotary) require_table(vector, head_dim);
      else require_vector(vector, head_dim > 0 ? head_dim : width);
    fit = fit && (head_dim == 0 || width % head_dim == 0);
    if (!operation.is_of_rows()) {
      const Index dim = width / operation.heads, kv_heads = width_of(operation.keys) / std::max<Index>(dim, 1);
      width = operation.heads * (width_of(operation.values) / std::max<Index>(kv_heads, 1));
    }
    widths.push_back(width);
  }
  return fit ? widths : std::vector<Index>();
}

nb::object RowProgram::run(const nb::list& values, const nb::list& vectors, const nb::list& attentions,
                           nb::handle num_threads) const {
  const Call call("RowProgram.run");
  const auto require_count = [&](const char* what, const nb::list& list, Place wanted) {
    call.require(static_cast<Place>(list.size()) == wanted, "there are ", list.size(), " ", what, ", wanted: ", wanted);
  };
  require_count("values", values, std::max(inputs_, 1));
  require_count("vectors", vectors, vectors_);
  require_count("attentions", attentions, attentions_);
  const Arrays given = arrays_of(call, "values", values, Floats());
  for (Place i = 0; i < inputs_; ++i)
    call.require(given[static_cast<std::size_t>(i)].has_value(), "value ", i, " is None");
  const Arrays of_vectors = arrays_of(call, "vectors", vectors, Element::float32);
  const std::vector<Index> widths = widths_of(given, of_vectors);
  if (widths.empty()) return nb::none();
  std::vector<Index> shape = given[0]->shape();
  Index rows = 1;
  for (std::size_t axis = 0; axis + 1 < shape.size(); ++axis) rows *= shape[axis];
  const Index length = attentions_ > 0 ? shape[1] : 1;

  std::deque<ScoreOptions> masks;
  std::vector<AttentionOptions> options;
  for (const Operation& operation : operations_) {
    if (operation.is_of_rows()) continue;
    const auto [mask, causal, scale, others] = nb::cast<std::tuple<nb::object, bool, nb::object, nb::object>>(
        attentions[static_cast<std::size_t>(operation.options)]);
    ScoreOptions& each = masks.emplace_back(call, mask, others, num_threads);
    each.values.causal = causal;
    if (!scale.is_none()) each.values.scale = call.float32("scale", scale);
    options.push_back(each.for_scores(shape[0], operation.heads, length, length));
  }
  const int threads = call.threads(num_threads);
  std::deque<Result> results;
  nb::list made;
  for (const Place output : outputs_) {
    shape.back() = widths[static_cast<std::size_t>(output)];
    made.append(results.emplace_back(call, given[0]->like(), nb::none(), shape, Floats()).object());
  }
  const auto compute = [&]<class T>(T) {
    Run<T> run(operations_, widths, of_vectors, options, threads);
    for (Place i = 0; i < inputs_; ++i) run.set(i, *given[static_cast<std::size_t>(i)]);
    for (std::size_t i = 0; i < outputs_.size(); ++i) run.set(outputs_[i], results[i].array());
    run.compute(length == 0 ? 0 : rows / length, length);
  };
  call.compute([&] {
    if (given[0]->element() == Element::bfloat16) compute(bfloat16());
    else if (given[0]->element() == Element::float16) compute(float16());
    else compute(float());
  });
  return made;
}

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

Place add_rotary(RowProgram& self, Place x, Place cosines, Place sines, Index head_dim) {
  const Call call(name);
  call.require(head_dim > 0 && head_dim % 2 == 0, "head_dim is ", head_dim);
  for (const Place table : {cosines, sines}) call.require(table >= 0, "there is no vector ", table);
  return self.add(call, {.kind = Kind::rotary, .x = x, .bias = cosines, .second = sines, .head_dim = head_dim});
}

Place add_attention(RowProgram& self, Place queries, Place keys, Place values, Index heads) {
  const Call call(name);
  call.require(heads > 0, "heads is ", heads);
  return self.add(call, {.kind = Kind::attention, .x = queries, .keys = keys, .values = values, .heads = heads});
}

}  // namespace

void add_row_program(nb::module_& module) {
  nb::class_<RowProgram> program(module, name);
  program.def(nb::init<Place>(), nb::arg("inputs"));
  define(program, "linear", &add_linear, "x", "matrix", "bias", "activation", "residual", "activations");
  define(program, "gated", &add_gated, "x", "gate", "up", "gate_bias", "up_bias", "activation", "activations");
  define(program, "norm", &add_norm, "centred", "x", "weight", "bias", "eps", "residual", "head_dim");
  define(program, "activate", &add_activation, "activation", "x");
  define(program, "scale", &add_scale, "x", "factor");
  define(program, "add", &add_pair<Kind::sum>, "x", "other");
  define(program, "multiply", &add_pair<Kind::product>, "x", "other");
  define(program, "rotary", &add_rotary, "x", "cosines", "sines", "head_dim");
  define(program, "attention", &add_attention, "queries", "keys", "values", "heads");
  define(program, "add_output", [](RowProgram& self, Place value) { self.add_output(Call(name), value); }, "value");
  define(program, "run", &RowProgram::run, "values", "vectors", "attentions", "num_threads");
}

}  // namespace headlane::python
