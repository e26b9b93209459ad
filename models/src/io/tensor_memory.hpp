// The memory of a Tensor.
#pragma once

#include <headlane/view.hpp>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

namespace headlane::models::internal {

/// Memory for n floats, aligned to cache lines.
std::shared_ptr<float> allocate_floats(std::size_t n);

/// A contiguous view, without data. Throws CheckpointError, with `subject` after the path, for more
/// than max_rank axes.
AnyView<const float> dense_view(std::span<const Index> shape, const std::filesystem::path& path,
                                std::string_view subject);

}  // namespace headlane::models::internal
