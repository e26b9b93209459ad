// A file that is read at any offset, with pread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <time.h>

namespace headlane::models::internal {

/// The file is not memory-mapped: reading a mapped file that was truncated raises SIGBUS, here it
/// is an error.
class InputFile {
 public:
  /// Throws CheckpointError unless the path is a regular file that is not empty.
  explicit InputFile(std::filesystem::path path);
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// In bytes, when the file was opened.
  [[nodiscard]] std::uint64_t size() const { return size_; }

  /// Fills `to` with the bytes from `offset` on. Throws CheckpointError, with `subject` after the
  /// name of the file, if they cannot be read, or if the file was truncated or written to after
  /// it was opened.
  void read(std::uint64_t offset, std::span<std::byte> to, std::string_view subject = {}) const;

 private:
  std::filesystem::path path_;
  int descriptor_;
  std::uint64_t size_ = 0;
  timespec modified_{};
};

/// The contents of a file of at most `limit` bytes.
std::string read_text(const std::filesystem::path& path, std::uint64_t limit);

}  // namespace headlane::models::internal
