// The kinds of arrays, and which of them are refused whatever their elements.
#pragma once

#include "core/array.hpp"

#include <atomic>

namespace headlane::python {

/// A module's attribute, looked up once and kept for the life of the process.
nb::handle cached(std::atomic<PyObject*>& cache, const char* module, const char* name);

[[nodiscard]] bool is_numpy(nb::handle object);
[[nodiscard]] bool is_torch(nb::handle object);

/// An array of NumPy whose elements are ml_dtypes' bfloat16.
[[nodiscard]] bool has_bfloat16(nb::handle array);

/// The type's name and the dtype, if there is one: "has type ndarray, dtype float64".
std::string described(nb::handle object);

/// The message of an error by which an object refuses to give its values, without the stack that
/// PyTorch appends. Throws an error of the caller's own code as it is.
std::string refusal_of(const nb::python_error& error, nb::handle object);

/// Calls object.__dlpack__() and returns the capsule, or an invalid object if there is no such
/// method or it refuses. nanobind makes the same calls, with and without DLPack's version, but
/// discards the exceptions that they raise.
nb::object exported(nb::handle object, bool to_be_written);

/// Throws for NumPy's masked arrays, and for tensors whose use PyTorch would record or intercept.
void refuse_special(const Call& call, const char* name, nb::handle object);

/// Why a tensor's values cannot be read, and what to pass instead; empty if unknown.
std::string reason_of(nb::handle tensor, const char* name);

/// An array of int64, the library's type of integers, from integers of any type in a list or array.
/// Throws TypeError.
nb::object int64_array(const Call& call, const char* name, nb::handle given);

}  // namespace headlane::python
