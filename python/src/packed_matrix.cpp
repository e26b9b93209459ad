// The class PackedMatrix. It does not change once it is made: calls on several threads may read it.
#include <headlane/packed_matrix.hpp>

#include "functions.hpp"
#include "products.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <new>

namespace headlane::python {
namespace {

constexpr const char* documentation =
    R"(A matrix [k, n], copied in the order in which products read it: weights that are used many times.

gemm, matmul, linear and gemm_gated take it as a right operand and give the same bits as with the matrix itself, without the
time for packing. The weight [out, in] of a PyTorch layer is PackedMatrix(weight.T).

b: a float32 matrix with any strides; not needed afterwards.
num_threads: to pack with; num_threads() if None.

It never changes, and any number of threads may use it at the same time.)";

PackedMatrix pack(nb::handle b, std::optional<int> num_threads) {
  constexpr const char* function = "PackedMatrix";
  const Array matrix(function, "b", b);
  require_matrix(function, matrix);
  const int threads = threads_of(function, num_threads);
  PackedMatrix packed;
  compute(function, [&] { packed = PackedMatrix(matrix_of<const float>(matrix), threads); });
  return packed;
}

std::string text_of(const PackedMatrix& matrix) {
  return "PackedMatrix(shape=(" + std::to_string(matrix.rows()) + ", " + std::to_string(matrix.columns()) +
         "), nbytes=" + std::to_string(matrix.bytes()) + ")";
}

}  // namespace

const PackedMatrix* packed_matrix_of(nb::handle object) {
  return nb::isinstance<PackedMatrix>(object) ? nb::inst_ptr<PackedMatrix>(object) : nullptr;
}

void add_packed_matrix(nb::module_& module) {
  nb::class_<PackedMatrix>(module, "PackedMatrix", nb::is_final(), documentation)
      .def(
          "__init__",
          [](PackedMatrix* self, nb::handle b, std::optional<int> num_threads) {
            new (self) PackedMatrix(pack(b, num_threads));
          },
          nb::arg("b").none(), nb::kw_only(), nb::arg("num_threads").none() = nb::none())
      .def_prop_ro(
          "shape",
          [](const PackedMatrix& self) {
            return nb::typed<nb::tuple, Index, Index>(nb::make_tuple(self.rows(), self.columns()));
          },
          "Rows and columns.")
      .def_prop_ro("nbytes", &PackedMatrix::bytes,
                   "The memory that it holds: its columns are padded to a multiple of 32.")
      .def("__repr__", &text_of);
}

}  // namespace headlane::python
