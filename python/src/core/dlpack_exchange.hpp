// DLPack's table of C functions, which a type offers as `__dlpack_c_exchange_api__`: as much of its layout as is needed here
// (dlpack.h, struct DLPackExchangeAPI). PyTorch 2.13 has it.
#pragma once

#include <cstdint>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

namespace headlane::python {

struct ExchangeInterface {
  std::uint32_t major, minor;
  const ExchangeInterface* previous;  // of an older major version
  void (*unused[3])();
  /// Fills in a tensor that stays valid while the object does; -1, with a Python error set, if it cannot.
  int (*tensor_from_object)(void* object, nanobind::dlpack::dltensor* out);
  void (*current_stream)();
};

/// Null if the object's type has none that we can read.
inline const ExchangeInterface* exchange_interface_of(nanobind::handle object) {
  nanobind::object capsule = nanobind::getattr(object.type(), "__dlpack_c_exchange_api__", nanobind::none());
  if (!PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api")) return nullptr;
  const auto* table = static_cast<const ExchangeInterface*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  while (table != nullptr && table->major != 1) table = table->previous;
  return table != nullptr && table->tensor_from_object != nullptr ? table : nullptr;
}

}  // namespace headlane::python
