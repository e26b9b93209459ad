// The class PackedMatrix. It is immutable: several threads may read it.
#include <headlane/packed_matrix.hpp>

#include "core/array_kinds.hpp"
#include "core/axes.hpp"
#include "core/define.hpp"
#include "core/dtype.hpp"
#include "core/functions.hpp"
#include "gemm/products.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
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

/// Calls f(T()), where T is the type of the elements of a result, one of three floats.
template <class F>
void compute_as(const Call& call, const Result& result, const F& f) {
  const Element element = result.array().element();
  call.compute([&] {
    if (element == Element::bfloat16) f(bfloat16());
    else if (element == Element::float16) f(float16());
    else f(float());
  });
}

nb::object unpacked(const PackedMatrix& self, nb::handle out, nb::handle num_threads) {
  const Call call("PackedMatrix.unpack");
  const int threads = call.threads(num_threads);
  const Result result(call, {}, out, {self.rows(), self.columns()}, Floats());
  compute_as(call, result, [&]<class T>(T /*type*/) { self.unpack(view_of<T, 2>(result.array()), threads); });
  return result.object();
}

/// The elements of an array of any rank, by rows, all of them below `count`.
std::vector<Index> checked_columns(const Array& columns, Index count) {
  const std::vector<Index> shape = columns.shape();
  std::vector<Index> wanted, position(shape.size());
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return wanted;
  while (true) {
    Index offset = 0;
    for (int axis = 0; axis < columns.rank(); ++axis)
      offset += position[static_cast<std::size_t>(axis)] * columns.stride(axis);
    const Index column = columns.data<const Index>()[offset];
    columns.require(column >= 0 && column < count, shape.empty() ? std::string() : shown(position), " is ", column,
                    ", the matrix has ", count, " columns");
    wanted.push_back(column);
    std::size_t axis = shape.size();
    while (axis > 0 && ++position[axis - 1] == shape[axis - 1]) position[--axis] = 0;
    if (axis == 0) return wanted;
  }
}

nb::object unpacked_columns(const PackedMatrix& self, nb::handle given, nb::handle out, nb::handle num_threads) {
  const Call call("PackedMatrix.unpack_columns");
  const int threads = call.threads(num_threads);
  const nb::object numbers = int64_array(call, "columns", given);
  const Array columns(call, "columns", numbers);
  const std::vector<Index> wanted = checked_columns(columns, self.columns());
  std::vector<Index> shape = columns.shape();
  shape.push_back(self.rows());
  const Result result(call, {}, out, shape, Floats());
  const Array& to = result.array();
  if (to.element() == Element::float32) result.require_apart({});
  CommonAxes<2> axes;  // of `wanted` and of the result
  Index step = static_cast<Index>(wanted.size());
  for (int axis = 0; axis < columns.rank(); ++axis) {
    step /= std::max<Index>(1, columns.size(axis));
    axes.add(columns.size(axis), {step, to.stride(axis)});
  }
  const auto together = axes.take_longest();
  compute_as(call, result, [&]<class T>(T /*type*/) {
    axes.for_each([&](const auto& offsets) {
      self.unpack_columns(
          {wanted.data() + offsets[0], {together.size}, {together.strides[0]}},
          View<T, 2>(to.data<T>() + offsets[1], {together.size, self.rows()}, {together.strides[1], to.stride(-1)}),
          threads);
    });
  });
  return result.object();
}

/// The bytes of an object with the buffer protocol, or of an array of uint8.
class Bytes {
 public:
  Bytes(const Call& call, nb::handle given) {
    const bool has_buffer = PyObject_CheckBuffer(given.ptr()) != 0;
    if (!has_buffer && !nb::hasattr(given, "__dlpack__"))
      call.refuse_type("bytes", given, "an object with the buffer protocol, or an array of uint8");
    if (is_numpy(given) || !has_buffer) {
      array_.emplace(call, "bytes", given, Element::uint8);
      array_->require(array_->rank() == 1, " has shape ", *array_, "; wanted: one axis");
      array_->require(array_->size(0) <= 1 || array_->stride(0) == 1, " has a stride of ", array_->stride(0),
                      "; wanted: adjacent bytes");
    } else if (PyObject_GetBuffer(given.ptr(), &buffer_, PyBUF_SIMPLE) != 0) {
      const nb::python_error error;
      const std::string reason = refusal_of(error, given);
      call.fail_as_type("bytes ", described(given), "; wanted: adjacent bytes (", reason, ")");
    }
  }
  ~Bytes() {
    if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
  }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;

  [[nodiscard]] std::span<const std::byte> span() const {
    if (array_) return {array_->data<const std::byte>(), static_cast<std::size_t>(array_->size(0))};
    return {static_cast<const std::byte*>(buffer_.buf), static_cast<std::size_t>(buffer_.len)};
  }

 private:
  std::optional<Array> array_;
  Py_buffer buffer_{};  // obj is null if none is held
};

PackedMatrix from_bytes(nb::handle given, nb::handle shape, nb::handle dtype) {
  const Call call("PackedMatrix.from_bytes");
  const DType type = dtype_named(call, "dtype", dtype);
  const std::vector<Index> sizes = call.integers("shape", shape);
  call.require(sizes.size() == 2, "shape is ", sizes, "; wanted: rows and columns");
  const Bytes bytes(call, given);
  PackedMatrix packed;
  call.compute([&] { packed = PackedMatrix::from_bytes(bytes.span(), sizes[0], sizes[1], type); });
  return packed;
}

/// The memory of a matrix, which the array keeps alive.
nb::object packed_bytes(nb::handle self) {
  const auto& matrix = *nb::inst_ptr<PackedMatrix>(self);
  static constexpr std::uint8_t nothing = 0;
  const auto* const data = static_cast<const std::uint8_t*>(matrix.data());
  return nb::cast(nb::ndarray<nb::numpy, const std::uint8_t, nb::ndim<1>>(data != nullptr ? data : &nothing,
                                                                          {matrix.bytes()}, self));
}

}  // namespace

void add_packed_matrix(nb::module_& module) {
  // torch.compile keeps graphs, and the matrices in them, until the process has ended.
  nb::set_leak_warnings(false);
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
  matrix.def_static("from_bytes", &from_bytes, nb::arg("bytes").none(), nb::arg("shape").none(),
                    nb::arg("dtype").none());
  matrix.attr("layout") = PackedMatrix::layout;
  define(matrix, "unpack", &unpacked, "out", "num_threads");
  define(matrix, "unpack_columns", &unpacked_columns, "columns", "out", "num_threads");
  matrix.def("packed_bytes", [](nb::handle_t<PackedMatrix> self) { return packed_bytes(self); });
  define(matrix, "unpack_numbers", &unpacked_numbers);
  matrix.def_prop_ro("rows", &PackedMatrix::rows)
      .def_prop_ro("columns", &PackedMatrix::columns)
      .def_prop_ro("dtype", [](const PackedMatrix& self) { return nb::str(name_of(self.type())); })
      .def_prop_ro("nbytes", &PackedMatrix::bytes);
}

}  // namespace headlane::python
