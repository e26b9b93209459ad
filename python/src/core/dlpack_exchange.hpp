// DLPack's table of C functions, which a type offers as `__dlpack_c_exchange_api__`: the part of
// its layout that is used here (dlpack.h, struct DLPackExchangeAPI). PyTorch 2.13 has it.
#pragma once

#include "core/names.hpp"

#include <cstdint>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

namespace headlane::python {

struct ExchangeInterface {
  std::uint32_t major, minor;
  const ExchangeInterface* previous;  // of an older major version
  void (*unused[3])();
  /// Fills in a tensor that is valid as long as the object; returns -1, with a Python error set, if
  /// it cannot.
  int (*tensor_from_object)(void* object, nanobind::dlpack::dltensor* out);
  void (*current_stream)();
};

/// Null if the object's type has no table of a version known here.
inline const ExchangeInterface* exchange_interface_of(nanobind::handle object) {
  static constinit Name api("__dlpack_c_exchange_api__");
  const nanobind::object capsule = optional_attribute(object.type(), api);
  if (PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api") == 0) return nullptr;  // null is not valid either
  const auto* table = static_cast<const ExchangeInterface*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  while (table != nullptr && table->major != 1) table = table->previous;
  return table != nullptr && table->tensor_from_object != nullptr ? table : nullptr;
}

}  // namespace headlane::python
