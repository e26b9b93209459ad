// How arrays are borrowed (see the header), and how results are made.
#include "core/array_kinds.hpp"
#include "core/dlpack_exchange.hpp"
#include "core/names.hpp"
#include "core/views.hpp"

#include <headlane/disjoint.hpp>

#include <bit>
#include <new>
#include <utility>

namespace headlane::python {
namespace {

std::atomic<PyObject*> numpy_empty, numpy_float32, numpy_float16, numpy_int8, numpy_uint16;
std::atomic<PyObject*> torch_empty, torch_float32, torch_bfloat16, torch_float16;

/// The format of an element in native byte order, 0 for another one. NumPy marks unaligned arrays
/// with '=' or '^'.
char format_of(const char* format) {
  if (format == nullptr) return 'B';
  constexpr char native = std::endian::native == std::endian::little ? '<' : '>';
  if (*format == '@' || *format == '=' || *format == '^' || *format == native) ++format;
  return format[0] != '\0' && format[1] == '\0' ? format[0] : '\0';
}

nb::dlpack::dtype float_of(nb::dlpack::dtype_code code, std::uint8_t bits) {
  return {static_cast<std::uint8_t>(code), bits, 1};
}

nb::tuple tuple_of(const Index* shape, int rank) {
  nb::tuple result = nb::steal<nb::tuple>(PyTuple_New(rank));
  for (int axis = 0; axis < rank; ++axis) PyTuple_SetItem(result.ptr(), axis, PyLong_FromSsize_t(shape[axis]));
  return result;
}

nb::handle numpy_type(Element element) {
  if (element == Element::float16) return cached(numpy_float16, "numpy", "float16");
  if (element == Element::int8) return cached(numpy_int8, "numpy", "int8");
  return cached(numpy_float32, "numpy", "float32");
}

nb::handle torch_type(Element element) {
  if (element == Element::bfloat16) return cached(torch_bfloat16, "torch", "bfloat16");
  if (element == Element::float16) return cached(torch_float16, "torch", "float16");
  return cached(torch_float32, "torch", "float32");
}

const char* name_of(Element element) {
  constexpr const char* names[] = {"float32", "bfloat16", "float16", "bool", "uint8", "int8", "int64", "another type"};
  return names[static_cast<int>(element)];
}

/// A MemoryError that names function and argument.
class NoMemory : public std::bad_alloc {
 public:
  explicit NoMemory(std::string text) : text_(std::move(text)) {}
  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

/// An array of bfloat16 that offers __dlpack__ and nothing more.
nb::object exporter_of_bfloat16(const Index* shape, int rank) {
  std::vector<std::size_t> sizes(shape, shape + rank);
  std::size_t count = 1;
  for (const std::size_t size : sizes) count *= size;
  auto memory = std::make_unique<bfloat16[]>(count);
  void* data = memory.get();
  const nb::capsule owner(memory.release(), [](void* owned) noexcept { delete[] static_cast<bfloat16*>(owned); });
  const nb::dlpack::dtype type = float_of(nb::dlpack::dtype_code::Bfloat, 16);
  return nb::cast(nb::ndarray<nb::array_api>(data, sizes.size(), sizes.data(), owner, nullptr, type));
}

}  // namespace

Array::Array(const Call& call, const char* name, nb::handle object, Access access)
    : call_(&call), name_(name), object_(nb::borrow(object)) {
  refuse_special(call, name, object);
  if (is_numpy(object)) from_buffer(access);
  else if (!from_exchange_interface()) from_dlpack(access);
  static constexpr Index nothing = 0;
  if (data_ == nullptr) data_ = const_cast<Index*>(&nothing);  // an empty array: never written
}

Array::Array(const Call& call, const char* name, nb::handle object, Element wanted, Access access)
    : Array(call, name, object, access) {
  require_element(wanted, access);
}

Array::Array(const Call& call, const char* name, nb::handle object, Floats /*kind*/, Access access)
    : Array(call, name, object, access) {
  access_ = access;
  if (element_ == Element::bfloat16 || element_ == Element::float16) set_outline(access);
  else require_element(Element::float32, access);
}

Array::~Array() {
  if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
}

void Array::fail_as_type(const std::string& text) const { call_->fail_as_type(name_, " ", text); }

/// Appends the exporter's reason, if it set a Python error.
void Array::fail_to_export() const {
  const std::string reason = PyErr_Occurred() != nullptr ? " (" + refusal_of(nb::python_error(), object_) + ")" : "";
  if (is_torch(object_))
    if (const std::string own = reason_of(object_, name_); !own.empty()) fail_as_type(own);
  fail_as_type(described(object_) +
               "; wanted: an array of float32, bfloat16 or float16 in CPU memory, of NumPy, of PyTorch or with "
               "DLPack" +
               reason);
}

void Array::set_rank(Index rank) {
  require(rank <= max_rank, " has ", rank, " axes, at most ", max_rank, " are supported");
  rank_ = static_cast<int>(rank);
}

/// The buffer protocol has no bfloat16: NumPy exports the bits of its elements.
void Array::get_buffer() {
  if (PyObject_GetBuffer(object_.ptr(), &buffer_, PyBUF_RECORDS_RO) == 0) return;
  const nb::python_error error;
  if (!has_bfloat16(object_)) {
    nb::python_error(error).restore();
    fail_to_export();
  }
  const nb::object bits = object_.attr("view")(cached(numpy_uint16, "numpy", "uint16"));
  if (PyObject_GetBuffer(bits.ptr(), &buffer_, PyBUF_RECORDS_RO) != 0) fail_to_export();
  element_ = Element::bfloat16;
}

void Array::from_buffer(Access access) {
  get_buffer();
  if (access != Access::read && buffer_.readonly != 0) {
    PyBuffer_Release(&buffer_);
    require(false, " is read-only");
  }
  try {
    set_rank(buffer_.ndim);
    const char format = format_of(buffer_.format);
    if (format == 'f') element_ = Element::float32;
    if (format == 'e') element_ = Element::float16;
    if (format == '?') element_ = Element::boolean;
    if (format == 'B') element_ = Element::uint8;
    if (format == 'b') element_ = Element::int8;
    if ((format == 'l' || format == 'q') && buffer_.itemsize == sizeof(Index)) element_ = Element::int64;
    for (std::size_t axis = 0; axis < static_cast<std::size_t>(rank_); ++axis) {
      shape_[axis] = buffer_.shape[axis];
      strides_[axis] = buffer_.strides[axis] / buffer_.itemsize;
      if (shape_[axis] > 1 && buffer_.strides[axis] % buffer_.itemsize != 0)
        fail_as_type("has a stride of " + std::to_string(buffer_.strides[axis]) +
                     " bytes, no multiple of its elements");
    }
    data_ = buffer_.buf;
  } catch (...) {
    PyBuffer_Release(&buffer_);
    throw;
  }
}

void Array::set_tensor(const nb::dlpack::dltensor& tensor) {
  if (tensor.device.device_type != nb::device::cpu::value)
    fail_as_type("is not in CPU memory (DLPack device " + std::to_string(tensor.device.device_type) +
                 "); copy it there first, in PyTorch with .cpu()");
  set_rank(tensor.ndim);
  if (tensor.dtype == nb::dtype<float>()) element_ = Element::float32;
  if (tensor.dtype == float_of(nb::dlpack::dtype_code::Bfloat, 16)) element_ = Element::bfloat16;
  if (tensor.dtype == float_of(nb::dlpack::dtype_code::Float, 16)) element_ = Element::float16;
  if (tensor.dtype == nb::dtype<bool>()) element_ = Element::boolean;
  if (tensor.dtype == nb::dtype<std::uint8_t>()) element_ = Element::uint8;
  if (tensor.dtype == nb::dtype<std::int8_t>()) element_ = Element::int8;
  if (tensor.dtype == nb::dtype<Index>()) element_ = Element::int64;
  data_ = static_cast<char*>(tensor.data) + tensor.byte_offset;
  Index dense = 1;
  bool empty = false;
  for (std::size_t axis = static_cast<std::size_t>(rank_); axis-- > 0;) {
    shape_[axis] = tensor.shape[axis];
    strides_[axis] = tensor.strides != nullptr ? tensor.strides[axis] : dense;
    dense *= tensor.shape[axis];
    empty = empty || tensor.shape[axis] == 0;
  }
  if (tensor.data == nullptr && !empty) fail_as_type(described(object_) + ", which has no values in memory");
}

/// DLPack's table of C functions: tens of nanoseconds, where __dlpack__ of a PyTorch tensor takes
/// microseconds.
bool Array::from_exchange_interface() {
  const ExchangeInterface* interface = exchange_interface_of(object_);
  if (interface == nullptr) return false;
  nb::dlpack::dltensor tensor;
  if (interface->tensor_from_object(object_.ptr(), &tensor) != 0) fail_to_export();
  set_tensor(tensor);
  return true;
}

void Array::from_dlpack(Access access) {
  nb::object source = nb::borrow(object_);
  // Without the table, a tensor that requires a gradient refuses to be exported even where none is
  // recorded.
  if (is_torch(object_) && nb::cast<bool>(object_.attr("requires_grad"))) source = object_.attr("detach")();
  if (const nb::object capsule = exported(source, access != Access::read); capsule.is_valid()) source = capsule;
  nb::ndarray<> writable;
  if (access != Access::read && nb::try_cast(source, writable)) tensor_.emplace(writable);
  nb::ndarray<nb::ro> readable;
  if (access == Access::read && nb::try_cast(source, readable)) tensor_.emplace(readable);
  if (!tensor_) fail_to_export();
  nb::dlpack::dltensor tensor;
  tensor.data = const_cast<void*>(static_cast<const void*>(tensor_->data()));
  tensor.device = {tensor_->device_type(), tensor_->device_id()};
  tensor.ndim = static_cast<std::int32_t>(tensor_->ndim());
  tensor.dtype = tensor_->dtype();
  tensor.shape = const_cast<std::int64_t*>(tensor_->shape_ptr());
  tensor.strides = const_cast<std::int64_t*>(tensor_->stride_ptr());
  set_tensor(tensor);
}

void Array::set_outline(Access access) {
  require(reinterpret_cast<std::uintptr_t>(data_) % 2 == 0, " is misaligned: its address is 1 modulo 2");
  if (access == Access::read || outline_) return;
  outline_.data = data_;
  outline_.type = type();
  outline_.rank = rank_;
  outline_.shape = shape_;
  outline_.strides = strides_;
  require_disjoint(call_->function(), {name_, outline_}, {});
}

void Array::set_copy(Access access) {
  set_outline(access);
  Memory memory;
  memory.data = data_;
  memory.rank = rank_;
  memory.shape = shape_;
  memory.strides = strides_;
  try {
    const FloatCopy& copy = call_->keep({type(), memory, access != Access::write, access != Access::read});
    data_ = copy.data();
    is_copied_ = true;
    for (std::size_t axis = 0; axis < static_cast<std::size_t>(rank_); ++axis) strides_[axis] = copy.stride(axis);
  } catch (const std::bad_alloc&) {
    throw NoMemory(call_->message(name_, " of shape ", *this, ": there is no memory for a copy in float32"));
  }
}

void Array::require_element(Element wanted, Access access) {
  if (element_ == wanted) return;
  if (wanted == Element::float32 && (element_ == Element::bfloat16 || element_ == Element::float16))
    return set_copy(access);
  std::string text = described(object_);
  if (wanted != Element::float32) fail_as_type(text + "; wanted: " + name_of(wanted));
  if (text.find("complex") != std::string::npos)
    fail_as_type(text + "; headlane computes with real numbers: pass " + name_ + ".real and " + name_ +
                 ".imag, in float32");
  const char* remedy = is_torch(object_) ? ".float()" : ".astype(np.float32)";
  fail_as_type(text + "; wanted: float32, bfloat16 or float16: pass " + name_ + remedy);
}

std::optional<Array> optional_integers(const Call& call, const char* name, nb::handle given) {
  if (given.is_none()) return {};
  return std::optional<Array>(std::in_place, call, name, int64_array(call, name, given), Element::int64);
}

nb::object new_array(const Like& like, const Index* shape, int rank) {
  const nb::tuple sizes = tuple_of(shape, rank);
  if (is_torch(like.object))
    return cached(torch_empty, "torch", "empty")(sizes, nb::arg("dtype") = torch_type(like.element),
                                                 nb::arg("device") = "cpu");
  const nb::handle empty = cached(numpy_empty, "numpy", "empty");
  if (like.element != Element::bfloat16) return empty(sizes, numpy_type(like.element));
  return is_numpy(like.object) ? empty(sizes, like.object.attr("dtype")) : exporter_of_bfloat16(shape, rank);
}

nb::object array_of(const std::vector<float>& elements, const std::vector<Index>& shape) {
  nb::object result = new_array({}, shape.data(), static_cast<int>(shape.size()));
  const Call call("array_of");
  std::copy(elements.begin(), elements.end(), Array(call, "result", result, Access::write).data<float>());
  return result;
}

void announce_write(nb::handle object) {
  static constinit Name is_inference("is_inference");
  if (!is_torch(object) || nb::cast<bool>(call_method(object, is_inference))) return;
  nb::module_::import_("torch.autograd.graph").attr("increment_version")(object);
}

nb::object finished(nb::handle like, nb::object result) {
  if (is_numpy(like) || is_torch(like) || !nb::hasattr(like, "__array_namespace__")) return result;
  return like.attr("__array_namespace__")().attr("from_dlpack")(result);
}

}  // namespace headlane::python
