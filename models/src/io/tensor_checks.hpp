// Checks of the tensors in a file, of either format.
#pragma once

#include "io/error.hpp"

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <vector>

namespace headlane::models::internal {

/// Every byte belongs to exactly one of the tensors, whose places are within `bytes`, except for
/// those that align the next one, or the end: otherwise a file could hide data or have two
/// meanings.
template <class Tensors>
void check_places(const Tensors& tensors, std::uint64_t bytes, std::uint64_t alignment,
                  const std::filesystem::path& path) {
  std::vector<std::tuple<std::uint64_t, std::uint64_t, std::string_view>> places;
  places.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) places.emplace_back(tensor.offset, tensor.offset + tensor.size, name);
  std::sort(places.begin(), places.end());
  const auto aligned = [&](std::uint64_t x) { return (x + alignment - 1) / alignment * alignment; };
  std::uint64_t end = 0;
  for (const auto& [begin, next_end, name] : places) {
    if (begin < end) fail(path, subject_of(name), "overlaps another one: it begins at ", begin, ", before ", end);
    if (begin > aligned(end))
      fail(path, subject_of(name), "begins at ", begin, ", but the data before it ends at ", end);
    end = next_end;
  }
  if (bytes > aligned(end)) fail(path, "has ", bytes, " bytes of data, the tensors end at ", end);
}

/// The tensor has the shape that is expected.
inline void check_shape(const std::filesystem::path& path, std::string_view name, std::span<const Index> shape,
                        std::span<const Index> expected) {
  if (!std::equal(expected.begin(), expected.end(), shape.begin(), shape.end()))
    fail(path, subject_of(name), "has the shape ", listed(shape), ", ", listed(expected), " is expected");
}

}  // namespace headlane::models::internal
