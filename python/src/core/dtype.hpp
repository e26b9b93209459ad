// The types of elements by their names in Python.
#pragma once

#include "core/call.hpp"

#include <headlane/dtype.hpp>

#include <stdexcept>
#include <string>
#include <string_view>

namespace headlane::python {

/// One of the types from `first` to `last`.
inline DType dtype_named(const Call& call, std::string_view argument, nb::handle given,
                         DType last = DType::int4_group32, DType first = DType::float32) {
  const std::string name = call.text(argument, given);
  std::string names;
  for (int i = static_cast<int>(first); i <= static_cast<int>(last); ++i) {
    const auto type = static_cast<DType>(i);
    if (name == name_of(type)) return type;
    names += std::string(type == first ? "" : type == last ? " and " : ", ") + name_of(type);
  }
  throw std::invalid_argument(call.message(argument, " is '", name, "'; there are ", names));
}

/// The type of activations: those of GemmOptions::activations.
inline DType activations_named(const Call& call, nb::handle given) {
  const std::string name = call.text("activations", given);
  for (const DType type : {DType::float32, DType::bfloat16, DType::int8})
    if (name == name_of(type)) return type;
  throw std::invalid_argument(call.message("activations is '", name, "'; there are float32, bfloat16 and int8"));
}

}  // namespace headlane::python
