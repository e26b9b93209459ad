// The class PackedMatrix. It is immutable: several threads may read it.
#include <headlane/packed_matrix.hpp>

#include "core/define.hpp"
#include "core/dtype.hpp"
#include "core/functions.hpp"
#include "gemm/products.hpp"

#include <new>
#include <utility>

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

/// The type of the numbers of a matrix of this type, which is not float32.
Element element_of(DType type) {
  if (type == DType::bfloat16) return Element::bfloat16;
  return type == DType::float16 ? Element::float16 : Element::int8;
}

bool is_grouped(DType type) { return type == DType::int8_group32 || type == DType::int4_group32; }

PackedMatrix from_elements(const Call& call, DType type, const Array& numbers, const NumbersOptions& options) {
  PackedMatrix packed;
  call.compute([&] {
    packed = type == DType::bfloat16 ? PackedMatrix::from_numbers(view_of<const bfloat16, 2>(numbers), options)
                                     : PackedMatrix::from_numbers(view_of<const float16, 2>(numbers), options);
  });
  return packed;
}

PackedMatrix from_integers(const Call& call, DType type, const Array& numbers, nb::handle given_scales,
                           const NumbersOptions& options) {
  const bool groups = is_grouped(type);
  const Array scales(call, "scales", given_scales, groups ? Element::float16 : Element::float32);
  scales.require(scales.rank() == (groups ? 2 : 1), " has shape ", scales,
                 "; wanted: ", groups ? "[groups of 32 rows, columns]" : "[columns]");
  const View<const std::int8_t, 2> q = view_of<const std::int8_t, 2>(numbers);
  PackedMatrix packed;
  call.compute([&] {
    packed = groups ? PackedMatrix::from_numbers(q, view_of<const float16, 2>(scales), type, options)
                    : PackedMatrix::from_numbers(q, view_of<const float, 1>(scales), options);
  });
  return packed;
}

PackedMatrix from_numbers(nb::handle given, nb::handle scales, nb::handle dtype, nb::handle clamp,
                          nb::handle num_threads) {
  const Call call("PackedMatrix.from_numbers");
  const DType type = dtype_named(call, "dtype", dtype, DType::int4_group32, DType::bfloat16);
  const NumbersOptions options{.clamp = call.flag("clamp", clamp), .num_threads = call.threads(num_threads)};
  const Element element = element_of(type);
  const Array numbers(call, "numbers", given, element);
  require_matrix(numbers);
  if (element == Element::int8) return from_integers(call, type, numbers, scales, options);
  call.require(scales.is_none(), "scales are given, ", name_of(type), " has none");
  return from_elements(call, type, numbers, options);
}

nb::tuple unpacked_numbers(const PackedMatrix& self) {
  const Call call("PackedMatrix.unpack_numbers");
  const DType type = self.type();
  call.require(type == DType::int8 || is_grouped(type), "the matrix is of ", name_of(type),
               ", it has no numbers and scales");
  const Index rows = self.rows(), sizes[] = {rows, self.columns()};
  const Index groups[] = {rows / 32 + (rows % 32 != 0 ? 1 : 0), self.columns()};
  const nb::object numbers = new_array({.element = Element::int8}, sizes, 2);
  const nb::object scales =
      is_grouped(type) ? new_array({.element = Element::float16}, groups, 2) : new_array({}, &sizes[1], 1);
  const Array to_numbers(call, "numbers", numbers, Element::int8, Access::write);
  const Array to_scales(call, "scales", scales, Element::float32, Access::write);  // float16: rounded, which is exact
  call.compute([&] { self.unpack(view_of<std::int8_t, 2>(to_numbers), view_of<float, 2>(to_scales)); });
  return nb::make_tuple(numbers, scales);
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
  // What from_numbers() or a file made; the package has a class of its own.
  matrix.def("__init__", [](PackedMatrix* self, PackedMatrix& made) { new (self) PackedMatrix(std::move(made)); });
  matrix.def_static("from_numbers", &from_numbers, nb::arg("numbers").none(), nb::arg("scales").none(),
                    nb::arg("dtype").none(), nb::arg("clamp").none(), nb::arg("num_threads").none());
  define(matrix, "unpack", &unpacked);
  define(matrix, "unpack_numbers", &unpacked_numbers);
  matrix.def_prop_ro("rows", &PackedMatrix::rows)
      .def_prop_ro("columns", &PackedMatrix::columns)
      .def_prop_ro("dtype", [](const PackedMatrix& self) { return nb::str(name_of(self.type())); })
      .def_prop_ro("nbytes", &PackedMatrix::bytes);
}

}  // namespace headlane::python
