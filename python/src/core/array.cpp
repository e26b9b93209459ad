// How arrays come in (see the header) and how results are made.
#include "core/array_kinds.hpp"
#include "core/check.hpp"  // the library's own
#include "core/dlpack_exchange.hpp"

#include <bit>
#include <cstring>

namespace headlane::python {
namespace {

std::atomic<PyObject*> numpy_empty, numpy_float32, torch_empty, torch_float32;

/// One element of the machine's own byte order; NumPy marks arrays that are not aligned with '=' or '^'.
char format_of(const char* format) {
  if (format == nullptr) return 'B';
  constexpr char native = std::endian::native == std::endian::little ? '<' : '>';
  if (*format == '@' || *format == '=' || *format == '^' || *format == native) ++format;
  return format[0] != '\0' && format[1] == '\0' ? format[0] : '\0';
}

nb::tuple tuple_of(const Index* shape, int rank) {
  nb::tuple result = nb::steal<nb::tuple>(PyTuple_New(rank));
  for (int axis = 0; axis < rank; ++axis) PyTuple_SetItem(result.ptr(), axis, PyLong_FromSsize_t(shape[axis]));
  return result;
}

}  // namespace

Array::Array(const char* function, const char* name, nb::handle object, Access access)
    : function_(function), name_(name), object_(object) {
  refuse_special(function, name, object);
  if (is_numpy(object)) from_buffer(access);
  else if (!from_exchange_interface()) from_dlpack(access);
}

Array::~Array() {
  if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
}

void Array::fail_as_type(const std::string& text) const { refuse(function_, name_, text); }

/// With the reason of the exporter, which is the Python error that is set, if it gave one.
void Array::fail_to_export() const {
  const std::string reason = PyErr_Occurred() != nullptr ? " (" + first_line(nb::python_error()) + ")" : "";
  if (is_torch(object_))
    if (const std::string own = reason_of(object_, name_); !own.empty()) fail_as_type(own);
  fail_as_type(described(object_) +
               "; wanted: a float32 array in the CPU's memory, of NumPy, of PyTorch or with DLPack" + reason);
}

void Array::set_rank(Index rank) {
  if (rank > max_rank)
    throw nb::value_error((std::string(function_) + ": " + name_ + " has " + std::to_string(rank) + " axes, at most " +
                           std::to_string(max_rank) + " are supported")
                              .c_str());
  rank_ = static_cast<int>(rank);
}

void Array::from_buffer(Access access) {
  if (PyObject_GetBuffer(object_.ptr(), &buffer_, PyBUF_RECORDS_RO) != 0) fail_to_export();
  if (access == Access::write && buffer_.readonly != 0) {
    PyBuffer_Release(&buffer_);
    throw nb::value_error((std::string(function_) + ": " + name_ + " is read-only").c_str());
  }
  try {
    set_rank(buffer_.ndim);
    const char format = format_of(buffer_.format);
    if (format == 'f') type_ = Type::float32;
    if (format == '?') type_ = Type::boolean;
    if (format == 'B') type_ = Type::uint8;
    if ((format == 'l' || format == 'q') && buffer_.itemsize == sizeof(Index)) type_ = Type::int64;
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
    fail_as_type("is not in the CPU's memory (DLPack device " + std::to_string(tensor.device.device_type) +
                 "); copy it there first, in PyTorch with .cpu()");
  set_rank(tensor.ndim);
  if (tensor.dtype == nb::dtype<float>()) type_ = Type::float32;
  if (tensor.dtype == nb::dtype<bool>()) type_ = Type::boolean;
  if (tensor.dtype == nb::dtype<std::uint8_t>()) type_ = Type::uint8;
  if (tensor.dtype == nb::dtype<Index>()) type_ = Type::int64;
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

/// DLPack's table of C functions: some tens of nanoseconds, where __dlpack__ of a PyTorch tensor takes microseconds.
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
  // Without the table a tensor that wants a gradient refuses to be exported, even where none is recorded.
  if (is_torch(object_) && nb::cast<bool>(object_.attr("requires_grad"))) source = object_.attr("detach")();
  nb::ndarray<> writable;
  if (access == Access::write && nb::try_cast(source, writable)) tensor_.emplace(writable);
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

void Array::require_float() const {
  if (type_ == Type::float32) return;
  const char* remedy = is_torch(object_) ? ".float()" : ".astype(np.float32)";
  const std::string text = described(object_);
  if (text.find("complex") != std::string::npos)
    fail_as_type(text + "; headlane computes with real numbers: pass " + name_ + ".real and " + name_ +
                 ".imag, in float32");
  fail_as_type(text + "; headlane computes in float32: pass " + name_ + remedy);
}

void Array::require_bool() const {
  if (type_ != Type::boolean) fail_as_type(described(object_) + "; wanted: bool");
}

void Array::require_int64() const {
  if (type_ != Type::int64) fail_as_type(described(object_) + "; wanted: int64");
}

void Array::require_uint8() const {
  if (type_ != Type::uint8) fail_as_type(described(object_) + "; wanted: uint8");
}

void require_apart(const char* function, const Array& out, std::initializer_list<const Array*> inputs) {
  const AnyView<const float> written = any_view<const float>(out);
  internal::check_output(internal::operand(function, "out", written));
  for (const Array* input : inputs) {
    if (input == nullptr) continue;
    const AnyView<const float> read = any_view<const float>(*input);
    internal::check_no_overlap(internal::operand(function, "out", written), internal::operand(function, input->name(), read));
  }
}

nb::object new_array(nb::handle like, const Index* shape, int rank) {
  const nb::tuple sizes = tuple_of(shape, rank);
  if (!is_torch(like)) return cached(numpy_empty, "numpy", "empty")(sizes, cached(numpy_float32, "numpy", "float32"));
  return cached(torch_empty, "torch", "empty")(sizes, nb::arg("dtype") = cached(torch_float32, "torch", "float32"),
                                               nb::arg("device") = "cpu");
}

nb::object array_of(const std::vector<float>& elements, const std::vector<Index>& shape) {
  nb::object result = new_array(nb::none(), shape.data(), static_cast<int>(shape.size()));
  std::copy(elements.begin(), elements.end(), Array("array_of", "result", result, Access::write).floats());
  return result;
}

void announce_write(nb::handle object) {
  if (!is_torch(object) || nb::cast<bool>(object.attr("is_inference")())) return;
  nb::module_::import_("torch.autograd.graph").attr("increment_version")(object);
}

nb::object finished(nb::handle like, nb::object result) {
  if (is_numpy(like) || is_torch(like) || !nb::hasattr(like, "__array_namespace__")) return result;
  return like.attr("__array_namespace__")().attr("from_dlpack")(result);
}

}  // namespace headlane::python
