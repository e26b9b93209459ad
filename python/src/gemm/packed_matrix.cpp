// The class PackedMatrix. It does not change once it is made: calls on several threads may read it.
#include <headlane/packed_matrix.hpp>

#include "core/functions.hpp"
#include "gemm/products.hpp"

#include <new>

namespace headlane::python {
namespace {

PackedMatrix pack(nb::handle b, nb::handle num_threads) {
  constexpr const char* function = "PackedMatrix";
  const Array matrix(function, "b", b);
  require_matrix(function, matrix);
  const int threads = threads_of(function, num_threads);
  PackedMatrix packed;
  compute(function, [&] { packed = PackedMatrix(matrix_of<const float>(matrix), threads); });
  return packed;
}

nb::object unpacked(const PackedMatrix& self) {
  const Result result("PackedMatrix.unpack", nb::none(), nb::none(), {self.rows(), self.columns()});
  compute("PackedMatrix.unpack", [&] { self.unpack(matrix_of<float>(result.array())); });
  return result.object();
}

}  // namespace

const PackedMatrix* packed_matrix_of(const char* function, const char* name, nb::handle object) {
  return instance_of<PackedMatrix>(function, name, object);
}

void add_packed_matrix(nb::module_& module) {
  using nb::arg;
  nb::class_<PackedMatrix>(module, "PackedMatrix")
      .def(
          "__init__",
          [](PackedMatrix* self, nb::handle b, nb::handle num_threads) {
            new (self) PackedMatrix(pack(b, num_threads));
          },
          arg("b").none(), arg("num_threads").none())
      .def("unpack", &unpacked)
      .def_prop_ro("rows", &PackedMatrix::rows)
      .def_prop_ro("columns", &PackedMatrix::columns)
      .def_prop_ro("nbytes", &PackedMatrix::bytes);
}

}  // namespace headlane::python
