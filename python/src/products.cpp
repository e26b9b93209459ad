// gemm on two matrices, and matmul with NumPy's rules for vectors and batches, which calls the library for each batch element.
#include "batch.hpp"
#include "call.hpp"
#include "functions.hpp"

#include <headlane/gemm.hpp>

namespace headlane::python {
namespace {

template <class T>
View<T, 2> matrix_of(const Array& x) {
  return {x.floats(), {x.size(0), x.size(1)}, {x.stride(0), x.stride(1)}};
}

/// An operand of matmul: a vector is one row on the left, one column on the right.
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

template <class T>
View<T, 2> view_of(T* data, const Factor& factor) {
  return {data, {factor.rows, factor.columns}, {factor.row_stride, factor.column_stride}};
}

}  // namespace

nb::object gemm_of(nb::handle a, nb::handle b, nb::handle out, float alpha, float beta,
                   std::optional<int> num_threads) {
  constexpr const char* function = "gemm";
  const Array left(function, "a", a), right(function, "b", b);
  for (const Array* array : {&left, &right}) {
    array->require_float();
    require(array->rank() == 2, function, ": ", array->name(), " has shape ", *array, ", it must be a matrix");
  }
  require(beta == 0 || !out.is_none(), function, ": beta is ", beta,
          ", which needs out: the c of alpha * a @ b + beta * c");
  const Result result(function, a, out, {left.size(0), right.size(1)});
  const GemmOptions options{.alpha = alpha, .beta = beta, .num_threads = threads_of(function, num_threads)};
  compute(function, [&] {
    gemm(matrix_of<const float>(left), matrix_of<const float>(right), matrix_of<float>(result.array()), options);
  });
  return result.object();
}

nb::object matmul(nb::handle a, nb::handle b, nb::handle out, std::optional<int> num_threads) {
  constexpr const char* function = "matmul";
  const Array left(function, "a", a), right(function, "b", b);
  Batch batch(function, 2);
  for (const Array* array : {&left, &right}) {
    array->require_float();
    require(array->rank() >= 1, function, ": ", array->name(), " has no axis");
    batch.widen(*array);
  }
  const Factor of_a = left_factor(left), of_b = right_factor(right);
  require(of_a.columns == of_b.rows, function, ": a of shape ", left, " has ", of_a.columns, " columns, b of shape ",
          right, " has ", of_b.rows, " rows");
  std::vector<Index> shape;
  for (int axis = 0; axis < batch.rank(); ++axis) shape.push_back(batch.size(axis));
  if (left.rank() > 1) shape.push_back(of_a.rows);
  if (right.rank() > 1) shape.push_back(of_b.columns);
  const Result result(function, a, out, shape);

  const Array& c = result.array();
  const Factor of_c{of_a.rows, of_b.columns, left.rank() > 1 ? c.stride(batch.rank()) : 0,
                    right.rank() > 1 ? c.stride(-1) : 0};
  const GemmOptions options{.num_threads = threads_of(function, num_threads)};
  compute(function, [&] {
    batch.for_each(batch.rank(), [&](const Batch::Position& at) {
      Index offset = 0;
      for (int axis = 0; axis < batch.rank(); ++axis) offset += at[static_cast<std::size_t>(axis)] * c.stride(axis);
      gemm(view_of<const float>(left.floats() + batch.offset(left, batch.rank(), at), of_a),
           view_of<const float>(right.floats() + batch.offset(right, batch.rank(), at), of_b),
           view_of(c.floats() + offset, of_c), options);
    });
  });
  return result.object();
}

}  // namespace headlane::python
