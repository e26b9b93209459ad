// The class PackedMatrix. It is immutable: several threads may read it.
#include <headlane/packed_matrix.hpp>

#include "core/define.hpp"
#include "core/functions.hpp"
#include "gemm/products.hpp"

#include <new>

namespace headlane::python {
namespace {

PackedMatrix pack(nb::handle b, nb::handle num_threads) {
  constexpr const char* function = "PackedMatrix";
  const Array matrix(function, "b", b, Element::float32);
  require_matrix(function, matrix);
  const int threads = threads_of(function, num_threads);
  PackedMatrix packed;
  compute(function, [&] { packed = PackedMatrix(view_of<const float, 2>(matrix), threads); });
  return packed;
}

nb::object unpacked(const PackedMatrix& self) {
  const Result result("PackedMatrix.unpack", nb::none(), nb::none(), {self.rows(), self.columns()});
  compute("PackedMatrix.unpack", [&] { self.unpack(view_of<float, 2>(result.array())); });
  return result.object();
}

}  // namespace

const PackedMatrix* packed_matrix_of(const char* function, const char* name, nb::handle object) {
  return instance_of<PackedMatrix>(function, name, object);
}

void add_packed_matrix(nb::module_& module) {
  nb::class_<PackedMatrix> matrix(module, "PackedMatrix");
  define(
      matrix, "__init__",
      [](PackedMatrix* self, nb::handle b, nb::handle num_threads) { new (self) PackedMatrix(pack(b, num_threads)); },
      "b", "num_threads");
  define(matrix, "unpack", &unpacked);
  matrix.def_prop_ro("rows", &PackedMatrix::rows)
      .def_prop_ro("columns", &PackedMatrix::columns)
      .def_prop_ro("nbytes", &PackedMatrix::bytes);
}

}  // namespace headlane::python
