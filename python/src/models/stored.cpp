// The classes Checkpoint and GgufFile, which headlane/models/_stored.py wraps.
#include "models/models.hpp"

#include <headlane/models/checkpoint.hpp>
#include <headlane/models/gguf.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <optional>
#include <string_view>
#include <variant>

namespace headlane::python {
namespace {

using models::Checkpoint;
using models::GgufFile;
using models::Tensor;

/// The names of the functions of a class, for messages.
template <class File>
struct Functions;
template <>
struct Functions<Checkpoint> {
  static constexpr const char *type = "Checkpoint", *contains = "Checkpoint.contains", *shape = "Checkpoint.shape",
                              *load = "Checkpoint.load", *pack = "Checkpoint.pack";
  static constexpr const char* packed = "prefix";
};
template <>
struct Functions<GgufFile> {
  static constexpr const char *type = "GgufFile", *contains = "GgufFile.contains", *shape = "GgufFile.shape",
                              *load = "GgufFile.load", *pack = "GgufFile.pack";
  static constexpr const char* packed = "name";
};

/// A NumPy array in the memory of the tensor, which no other tensor shares.
nb::object array_of(const Tensor& tensor) {
  const AnyView<const float>& view = tensor.view();
  std::vector<std::size_t> sizes(view.shape.begin(), view.shape.begin() + view.rank);
  auto owned = std::make_unique<Tensor>(tensor);
  const nb::capsule owner(owned.release(), [](void* memory) noexcept { delete static_cast<Tensor*>(memory); });
  return nb::cast(nb::ndarray<nb::numpy, float>(const_cast<float*>(view.data), sizes.size(), sizes.data(), owner));
}

template <class File>
nb::object load(const File& self, nb::handle given_name, nb::handle given_shape) {
  const Call call(Functions<File>::load);
  const std::string name = call.text("name", given_name);
  std::optional<std::vector<Index>> shape;
  if (!given_shape.is_none()) shape = call.integers("shape", given_shape);
  Tensor tensor;
  call.compute([&] { tensor = shape ? self.load(name, *shape) : self.load(name); });
  return array_of(tensor);
}

/// A PackedMatrix of the extension, not of the package.
template <class File>
nb::object pack(const File& self, nb::handle given_name, nb::handle dtype, nb::handle clamp, nb::handle num_threads) {
  const Call call(Functions<File>::pack);
  const std::string name = call.text(Functions<File>::packed, given_name);
  models::PackWeightOptions options{.clamp = call.flag("clamp", clamp), .num_threads = call.threads(num_threads)};
  if (!dtype.is_none()) options.type = dtype_named(call, "dtype", dtype);
  PackedMatrix packed;
  call.compute([&] { packed = self.pack(name, options); });
  return nb::cast(std::move(packed));
}

/// Adds what both classes have. __init__ takes the path as os.fsencode() returns it: that
/// represents every name.
template <class File>
nb::class_<File> define_file(nb::module_& module) {
  using Names = Functions<File>;
  nb::class_<File> file(module, Names::type, nb::is_final());
  file.def("__init__", [](File* self, const nb::bytes& given) {
    const std::filesystem::path path = std::string(given.c_str(), given.size());
    Call(Names::type).compute([&] { new (self) File(path); });
  });
  define(
      file, "contains",
      [](const File& self, nb::handle name) { return self.contains(Call(Names::contains).text("name", name)); },
      "name");
  define(
      file, "shape",
      [](const File& self, nb::handle name) {
        return nb::tuple(nb::cast(self.shape(Call(Names::shape).text("name", name))));
      },
      "name");
  file.def("names", &File::names);
  define(file, "load", &load<File>, "name", "shape");
  define(file, "pack", &pack<File>, Names::packed, "dtype", "clamp", "num_threads");
  return file;
}

nb::object object_of(bool x) { return nb::bool_(x); }
nb::object object_of(std::int64_t x) { return nb::int_(x); }
nb::object object_of(double x) { return nb::float_(x); }

/// Bytes that are no UTF-8 as surrogates: text.encode("utf-8", "surrogateescape") returns them.
nb::object object_of(const std::string& x) {
  PyObject* text = PyUnicode_DecodeUTF8(x.data(), static_cast<Py_ssize_t>(x.size()), "surrogateescape");
  if (text == nullptr) throw nb::python_error();
  return nb::steal(text);
}

template <class T>
nb::object object_of(const std::vector<T>& elements) {
  nb::list result;
  for (const T& x : elements) result.append(object_of(x));
  return result;
}

nb::object metadata(const GgufFile& self, nb::handle key) {
  const std::optional<models::GgufValue> value = self.metadata(Call("GgufFile.metadata").text("key", key));
  return value ? std::visit([](const auto& x) { return object_of(x); }, *value) : nb::none();
}

}  // namespace

void add_stored(nb::module_& module) {
  define_file<Checkpoint>(module);
  nb::class_<GgufFile> gguf = define_file<GgufFile>(module);
  define(
      gguf, "type",
      [](const GgufFile& self, nb::handle name) {
        const std::string_view type = self.type(Call("GgufFile.type").text("name", name));
        return nb::str(type.data(), type.size());
      },
      "name");
  gguf.def("keys", &GgufFile::keys);
  define(gguf, "metadata", &metadata, "key");
}

}  // namespace headlane::python
