// gemm for two matrices, and matmul with NumPy's rules for vectors and batches: one call of the
// library as far as strides allow.
#include "gemm/products.hpp"

#include "core/axes.hpp"
#include "core/batch.hpp"
#include "core/dtype.hpp"
#include "core/functions.hpp"

namespace headlane::python {
namespace {

/// An operand of matmul. A vector is a row on the left and a column on the right.
struct Factor {
  Index rows, columns, row_stride, column_stride;
};

Factor left_factor(const Array& a) {
  if (a.rank() == 1) return {1, a.size(0), 0, a.stride(0)};
  return {a.size(-2), a.size(-1), a.stride(-2), a.stride(-1)};
}

Factor right_factor(const Array& b) {
  if (b.rank() == 1) return {b.size(0), 1, b.stride(0), 0};
  return {b.size(-2), b.size(-1), b.stride(-2), b.stride(-1)};
}

View<float, 3> matrices(float* data, const Factor& factor, Index count, Index stride) {
  return {data, {count, factor.rows, factor.columns}, {stride, factor.row_stride, factor.column_stride}};
}

}  // namespace

void require_matrix(const Array& array) {
  array.require(array.rank() == 2, " has shape ", array, ", it must be a matrix");
}

void require_axis(const Array& array) { array.require(array.rank() >= 1, " has no axis"); }

void require_fitting(const Array& left, const Right& right) {
  left.require(left.size(-1) == right.rows(), " of shape ", left, " has ", left.size(-1), " columns, ", right.name(),
               " has ", right.rows(), " rows");
}

void require_bias(const Array& bias, const std::vector<Index>& result) {
  bias.require(bias.rank() == 1 && bias.size(0) == result.back(), " has shape ", bias, ", the result ", result,
               ": wanted [", result.back(), "]");
}

void require_stored_for(const Call& call, DType activations, const char* name, const PackedMatrix* packed) {
  if (activations == DType::float32) return;
  const bool is_int8 = activations == DType::int8;
  const DType type = packed == nullptr ? DType::float32 : packed->type();
  if (type == activations || (is_int8 && (type == DType::int8_group32 || type == DType::int4_group32))) return;
  const std::string wanted = std::string("; with activations ") + name_of(activations) +
                             " it must be a PackedMatrix of " +
                             (is_int8 ? "int8, int8_group32 or int4_group32" : name_of(activations));
  call.require(packed != nullptr, name, " is not packed", wanted);
  call.require(false, name, " is a PackedMatrix of ", name_of(type), wanted);
}

Right::Right(const Call& call, const char* name, nb::handle object)
    : name_(name), packed_(call.instance<PackedMatrix>(name, object)) {
  if (packed_ != nullptr) return;
  array_.emplace(call, name, object, Element::float32);
  require_matrix(*array_);
}

Epilogue::Epilogue(const Call& call, const EpilogueArguments& given)
    : bias_(optional_array(call, "bias", given.bias, Element::float32)),
      residual_(optional_array(call, "residual", given.residual, Floats())),
      activation_(activation_named(call, given.activation)) {}

void Epilogue::check(const std::vector<Index>& shape) const {
  if (bias_) require_bias(*bias_, shape);
  if (residual_) residual_->require(residual_->shape() == shape, " has shape ", *residual_, ", the result ", shape);
}

GemmOptions Epilogue::options() const {
  GemmOptions options{.activation = activation_};
  if (bias_) options.bias = view_of<const float, 1>(*bias_);
  return options;
}

nb::object gemm_of(nb::handle a, nb::handle b, nb::handle out, nb::handle alpha, nb::handle given_beta, nb::handle bias,
                   nb::handle activation, nb::handle residual, nb::handle activations, nb::handle num_threads) {
  const Call call("gemm");
  const Array left(call, "a", a, Element::float32);
  require_matrix(left);
  const Right right(call, "b", b);
  const DType type = activations_named(call, activations);
  require_stored_for(call, type, right.name(), right.packed());
  const float beta = call.float32("beta", given_beta);
  call.require(beta == 0 || !out.is_none(), "beta is ", beta, ", which needs out: the c of alpha * a @ b + beta * c");
  const Epilogue epilogue(call, {bias, residual, activation});
  const std::vector<Index> shape{left.size(0), right.columns()};
  epilogue.check(shape);
  const Result result(call, left.like(), out, shape, beta == 0 ? Access::write : Access::update);
  GemmOptions options = epilogue.options();
  options.alpha = call.float32("alpha", alpha);
  options.beta = beta;
  options.activations = type;
  options.num_threads = call.threads(num_threads);
  if (const Array* added = epilogue.residual()) options.residual = typed(view_of<const float, 2>(*added), *added);
  call.compute([&] { right.multiply(view_of<const float, 2>(left), view_of<float, 2>(result.array()), options); });
  return result.object();
}

nb::object matmul(nb::handle a, nb::handle b, nb::handle out, nb::handle activations, nb::handle num_threads) {
  const Call call("matmul");
  if (call.instance<PackedMatrix>("b", b) != nullptr)
    return rows_times(call, "a", a, "b", b, out, {}, activations, num_threads);
  require_stored_for(call, activations_named(call, activations), "b", nullptr);
  const Array left(call, "a", a, Element::float32), right(call, "b", b, Element::float32);
  Batch batch(2);
  for (const Array* array : {&left, &right}) {
    require_axis(*array);
    batch.widen(*array);
  }
  const Factor of_a = left_factor(left), of_b = right_factor(right);
  call.require(of_a.columns == of_b.rows, "a of shape ", left, " has ", of_a.columns, " columns, b of shape ", right,
               " has ", of_b.rows, " rows");
  std::vector<Index> shape;
  for (int axis = 0; axis < batch.rank(); ++axis) shape.push_back(batch.size(axis));
  if (left.rank() > 1) shape.push_back(of_a.rows);
  if (right.rank() > 1) shape.push_back(of_b.columns);
  const Result result(call, left.like(), out, shape);

  const Array& c = result.array();
  result.require_apart({&left, &right});
  const Factor of_c{of_a.rows, of_b.columns, left.rank() > 1 ? c.stride(batch.rank()) : 0,
                    right.rank() > 1 ? c.stride(-1) : 0};
  const GemmBatchOptions options{.num_threads = call.threads(num_threads)};
  CommonAxes<3> axes;
  for (int axis = 0; axis < batch.rank(); ++axis)
    axes.add(batch.size(axis), {batch.stride(left, axis), batch.stride(right, axis), c.stride(axis)});
  const auto together = axes.take_longest();
  call.compute([&] {
    axes.for_each([&](const auto& offsets) {
      const auto view = [&](const Array& array, std::size_t i, const Factor& factor) {
        return matrices(array.data<float>() + offsets[i], factor, together.size, together.strides[i]);
      };
      gemm_batch(view(left, 0, of_a), view(right, 1, of_b), view(c, 2, of_c), options);
    });
  });
  return result.object();
}

}  // namespace headlane::python
