// The class PackedMatrix. It is immutable: several threads may read it.
#include <headlane/packed_matrix.hpp>

#include "core/define.hpp"
#include "core/dtype.hpp"
#include "core/functions.hpp"
#include "gemm/products.hpp"

#include <new>

namespace headlane::python {
namespace {

PackedMatrix pack(nb::handle b, nb::handle dtype, nb::handle num_threads) {
  const Call call("PackedMatrix");
  const Array matrix(call, "b", b, Element::float32);
  require_matrix(matrix);
  const PackOptions options{.type = dtype_named(call, "dtype", dtype), .num_threads = call.threads(num_threads)};
  PackedMatrix packed;
  call.compute([&] { packed = PackedMatrix(view_of<const float, 2>(matrix), options); });
  return packed;
}

nb::object unpacked(const PackedMatrix& self) {
  const Call call("PackedMatrix.unpack");
  const Result result(call, {}, nb::none(), {self.rows(), self.columns()});
  call.compute([&] { self.unpack(view_of<float, 2>(result.array())); });
  return result.object();
}

}  // namespace

void add_packed_matrix(nb::module_& module) {
  nb::class_<PackedMatrix> matrix(module, "PackedMatrix");
  define(
      matrix, "__init__",
      [](PackedMatrix* self, nb::handle b, nb::handle dtype, nb::handle num_threads) {
        new (self) PackedMatrix(pack(b, dtype, num_threads));
      },
      "b", "dtype", "num_threads");
  define(matrix, "unpack", &unpacked);
  matrix.def_prop_ro("rows", &PackedMatrix::rows)
      .def_prop_ro("columns", &PackedMatrix::columns)
      .def_prop_ro("dtype", [](const PackedMatrix& self) { return nb::str(name_of(self.type())); })
      .def_prop_ro("nbytes", &PackedMatrix::bytes);
}

}  // namespace headlane::python
