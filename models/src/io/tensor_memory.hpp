// The memory of a Tensor, and what its end leaves behind.
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

/// When it ends, memory that was freed goes back to the system, if the C library is glibc. Without,
/// 75 MiB of packed float32 tensors stay resident beside the 212 of a T5-base in int8.
class ReturnsFreedMemory {
 public:
  ReturnsFreedMemory() = default;
  ~ReturnsFreedMemory();
  ReturnsFreedMemory(const ReturnsFreedMemory&) = delete;
  ReturnsFreedMemory& operator=(const ReturnsFreedMemory&) = delete;
};

/// A contiguous view, without data. Throws CheckpointError, with `subject` after the path, for more
/// than max_rank axes.
AnyView<const float> dense_view(std::span<const Index> shape, const std::filesystem::path& path,
                                std::string_view subject);

}  // namespace headlane::models::internal
