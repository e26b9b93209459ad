// A file in memory, to be read only.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace headlane::models {

class MappedFile {
 public:
  /// Throws CheckpointError if there is no such regular file, it is empty, or it cannot be mapped.
  explicit MappedFile(std::filesystem::path path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }

  /// A part of bytes() is wanted soon.
  void fetch(std::span<const std::byte> part) const;

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace headlane::models
