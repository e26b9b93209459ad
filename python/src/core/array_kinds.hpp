// What kind of array a Python object is, and which are refused whatever their elements are.
#pragma once

#include "core/array.hpp"

#include <atomic>

namespace headlane::python {

/// A module's attribute, looked up once; kept for the life of the process.
nb::handle cached(std::atomic<PyObject*>& cache, const char* module, const char* name);

[[nodiscard]] bool is_numpy(nb::handle object);
[[nodiscard]] bool is_torch(nb::handle object);

/// A type's name and, where there is one, the array's dtype: "has type ndarray, dtype float64".
std::string described(nb::handle object);

/// An error's message, without the stack that PyTorch puts behind it.
std::string first_line(const nb::python_error& error);

/// Throws TypeError: "function: name text".
[[noreturn]] void refuse(const char* function, const char* name, const std::string& text);

/// Throws for NumPy's masked arrays, and for tensors that PyTorch would record or wrap.
void refuse_special(const char* function, const char* name, nb::handle object);

/// Why a tensor's values cannot be read, and what to pass instead; empty if that is not known.
std::string reason_of(nb::handle tensor, const char* name);

/// An array of int64, which is what the library reads, from integers of any kind, in a list or array. Throws TypeError.
nb::object int64_array(const char* function, const char* name, nb::handle given);

}  // namespace headlane::python
