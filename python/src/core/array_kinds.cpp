#include "core/array_kinds.hpp"

#include "core/names.hpp"

namespace headlane::python {
namespace {

std::atomic<PyObject*> numpy_ndarray, numpy_asarray, masked_array, numpy_bfloat16;
std::atomic<PyObject*> torch_tensor, torch_parameter, torch_is_tracing, torch_plain_dispatch, torch_forward_ad,
    torch_is_grad_enabled;
constinit Name requires_grad("requires_grad"), is_neg("is_neg"), current_level("_current_level"), dtype_name("dtype");

bool is_a(nb::handle object, nb::handle type) {
  return PyType_IsSubtype(Py_TYPE(object.ptr()), reinterpret_cast<PyTypeObject*>(type.ptr())) != 0;
}

/// A class of a module that may not have been imported: then null, and it is not imported here.
nb::handle imported(std::atomic<PyObject*>& cache, const char* module, const char* name) {
  if (cache.load(std::memory_order_acquire) == nullptr) {
    PyObject* loaded = PyDict_GetItemString(PyImport_GetModuleDict(), module);
    if (loaded == nullptr || !nb::hasattr(loaded, name)) return {};
  }
  return cached(cache, module, name);
}

/// An instance of such a class: if its module was not imported, there are none.
bool is_a(nb::handle object, std::atomic<PyObject*>& cache, const char* module, const char* name) {
  const nb::handle type = imported(cache, module, name);
  return type.is_valid() && is_a(object, type);
}

bool is_masked(nb::handle object) { return is_a(object, masked_array, "numpy.ma", "MaskedArray"); }

bool is_true(nb::handle object, const char* attribute) {
  const nb::object value = nb::getattr(object, attribute, nb::none());
  return PyObject_IsTrue(value.ptr()) == 1;
}

/// Throws RuntimeError, for a tensor whose use PyTorch would record.
template <class... Parts>
[[noreturn]] void refuse_to_record(const Call& call, const Parts&... parts) {
  throw std::runtime_error(call.message(parts...));
}

/// Whether forward-mode differentiation has attached a tangent to the tensor.
bool has_tangent(nb::handle tensor) {
  const nb::handle module = cached(torch_forward_ad, "torch.autograd", "forward_ad");
  const nb::object level = optional_attribute(module, current_level);  // below 0: outside of every dual_level()
  if (level.is_valid() && PyLong_Check(level.ptr()) != 0 && PyLong_AsLong(level.ptr()) < 0) return false;
  return !module.attr("unpack_dual")(tensor).attr("tangent").is_none();
}

/// Whether the tensor's class has its own __torch_dispatch__: its memory, if any, does not tell its
/// values.
bool computes_by_itself(nb::handle tensor) {
  const nb::handle type = tensor.type();
  if (type.is(cached(torch_tensor, "torch", "Tensor")) || type.is(cached(torch_parameter, "torch.nn", "Parameter")))
    return false;
  const nb::handle plain = cached(torch_plain_dispatch, "torch._C", "_disabled_torch_dispatch_impl");
  return !nb::getattr(type, "__torch_dispatch__", plain).is(plain);
}

void check_tensor(const Call& call, const char* name, nb::handle tensor) {
  if (nb::cast<bool>(cached(torch_is_tracing, "torch._C", "_is_tracing")()))
    refuse_to_record(call, name,
                     " is traced by torch.jit, which cannot record headlane: use the operators of headlane.torch_ops "
                     "(torch.ops.headlane) with torch.compile or torch.export");
  if (nb::cast<bool>(attribute(tensor, requires_grad)) &&
      nb::cast<bool>(cached(torch_is_grad_enabled, "torch", "is_grad_enabled")()))
    refuse_to_record(call, name,
                     " requires a gradient, and headlane computes none: call it within torch.no_grad(), or pass ", name,
                     ".detach()");
  if (computes_by_itself(tensor))
    call.fail_as_type(name, " ", described(tensor), ", which computes by itself; wanted: a plain torch.Tensor");
  if (has_tangent(tensor))
    refuse_to_record(call, name,
                     " has a tangent of forward-mode differentiation, and headlane computes none: pass "
                     "torch.autograd.forward_ad.unpack_dual(",
                     name, ").primal");
  // The memory of such a tensor holds the negatives of its values, which DLPack does not tell.
  if (nb::cast<bool>(call_method(tensor, is_neg)))
    call.fail_as_type(name, " is a negative view of other memory: pass ", name, ".resolve_neg()");
}

}  // namespace

nb::handle cached(std::atomic<PyObject*>& cache, const char* module, const char* name) {
  PyObject* object = cache.load(std::memory_order_acquire);
  if (object == nullptr) {
    object = nb::object(nb::module_::import_(module).attr(name)).release().ptr();
    cache.store(object, std::memory_order_release);
  }
  return object;
}

bool is_numpy(nb::handle object) { return is_a(object, cached(numpy_ndarray, "numpy", "ndarray")); }

bool is_torch(nb::handle object) { return is_a(object, torch_tensor, "torch", "Tensor"); }

bool has_bfloat16(nb::handle array) {
  const nb::handle type = imported(numpy_bfloat16, "ml_dtypes", "bfloat16");
  return type.is_valid() && array.attr("dtype").attr("type").is(type);
}

std::string described(nb::handle object) {
  std::string text = std::string("has type ") + nb::type_name(object.type()).c_str();
  const nb::object dtype = optional_attribute(object, dtype_name);
  if (dtype.is_valid() && !dtype.is_none()) text += std::string(", dtype ") + nb::str(nb::handle(dtype)).c_str();
  return text;
}

std::string refusal_of(const nb::python_error& error, nb::handle object) {
  const bool is_refusal =
      is_numpy(object) || is_torch(object)
          ? error.matches(PyExc_Exception)
          : error.matches(PyExc_TypeError) || error.matches(PyExc_ValueError) || error.matches(PyExc_BufferError);
  if (!is_refusal) throw nb::python_error(error);
  const std::string text = nb::str(nb::handle(error.value())).c_str();
  return text.substr(0, text.find('\n'));
}

nb::object exported(nb::handle object, bool to_be_written) {
  static constinit Name name("__dlpack__");
  const nb::object dlpack = optional_attribute(object, name);
  if (!dlpack.is_valid()) return {};
  for (const bool versioned : {to_be_written, !to_be_written}) {
    try {
      return versioned ? dlpack(nb::arg("max_version") = nb::make_tuple(1, 1)) : dlpack();
    } catch (const nb::python_error& error) {
      if (!error.matches(PyExc_TypeError) && !error.matches(PyExc_BufferError) && !is_torch(object)) throw;
    }
  }
  return {};
}

std::string reason_of(nb::handle tensor, const char* name) {
  const auto instead = [&](const char* remedy) { return std::string(": pass ") + name + remedy; };
  if (is_true(tensor, "is_quantized")) return "is quantised" + instead(".dequantize()");
  if (is_true(tensor, "is_nested")) return "is a nested tensor" + instead(".to_padded_tensor(0.0), with lengths");
  if (is_true(tensor, "is_meta")) return "has no values, being on the device meta";
  if (is_true(tensor, "is_mkldnn")) return "is in a layout of oneDNN" + instead(".to_dense()");
  const nb::object of_layout = tensor.attr("layout");
  const std::string layout = nb::str(nb::handle(of_layout)).c_str();
  if (layout != "torch.strided") return "has the layout " + layout + instead(".to_dense()");
  const nb::object functorch = nb::getattr(nb::module_::import_("torch._C"), "_functorch", nb::none());
  const nb::object wrapped = nb::getattr(functorch, "is_functorch_wrapped_tensor", nb::none());
  if (!wrapped.is_none() && nb::cast<bool>(wrapped(tensor)))
    return "is wrapped by torch.func (vmap, grad, jvp …), which cannot see through headlane: "
           "call it outside of those";
  return {};
}

void refuse_special(const Call& call, const char* name, nb::handle object) {
  if (is_torch(object)) return check_tensor(call, name, object);
  if (!object.type().is(cached(numpy_ndarray, "numpy", "ndarray")) && is_masked(object))
    call.fail_as_type(name, " is a masked array, and headlane does not read its mask: pass ", name,
                      ".filled(value) and, where there is one, a mask");
}

nb::object int64_array(const Call& call, const char* name, nb::handle given) {
  refuse_special(call, name, given);
  nb::object array;
  try {
    array = cached(numpy_asarray, "numpy", "asarray")(given);
  } catch (const nb::python_error& error) {
    const std::string reason = refusal_of(error, given);
    call.fail_as_type(name, " ", described(given), "; wanted: integers (", reason, ")");
  }
  const nb::object dtype = array.attr("dtype");
  const std::string kind = nb::str(dtype.attr("kind")).c_str();
  if (kind != "i" && kind != "u" && nb::cast<Index>(array.attr("size")) > 0)
    call.fail_as_type(name, " has dtype ", nb::str(nb::handle(dtype)).c_str(), "; wanted: integers");
  return array.attr("astype")("int64", nb::arg("copy") = false);
}

}  // namespace headlane::python
