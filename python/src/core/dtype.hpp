// The names of DType in Python.
#pragma once

#include "core/call.hpp"

#include <headlane/dtype.hpp>

#include <string>
#include <string_view>
#include <utility>

namespace headlane::python {

inline constexpr std::pair<const char*, DType> dtypes[] = {
    {"float32", DType::float32}, {"bfloat16", DType::bfloat16}, {"float16", DType::float16}, {"int8", DType::int8}};

inline DType dtype_named(Call call, std::string_view argument, nb::handle given) {
  const std::string name = call.text(argument, given);
  for (const auto& [known, type] : dtypes)
    if (name == known) return type;
  throw std::invalid_argument(
      call.message(argument, " is '", name, "'; there are float32, bfloat16, float16 and int8"));
}

inline const char* name_of(DType type) { return dtypes[static_cast<std::size_t>(type)].first; }

}  // namespace headlane::python
