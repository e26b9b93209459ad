// A file that is read at any offset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <time.h>

namespace headlane::models::internal {

/// Read, never mapped: reading past the end of a mapped file that was truncated is a SIGBUS, here it is an error.
class InputFile {
 public:
  /// Throws CheckpointError if there is no such regular file, or it is empty.
  explicit InputFile(std::filesystem::path path);
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// In bytes, when the file was opened.
  [[nodiscard]] std::uint64_t size() const { return size_; }

  /// Fills `to` with the bytes from `offset` on. Throws CheckpointError, with `subject` behind the file's name, if they
  /// cannot be read, or the file was truncated or written to after it was opened.
  void read(std::uint64_t offset, std::span<std::byte> to, std::string_view subject = {}) const;

 private:
  std::filesystem::path path_;
  int descriptor_;
  std::uint64_t size_ = 0;
  timespec modified_{};
};

/// The content of a file of at most `limit` bytes.
std::string read_text(const std::filesystem::path& path, std::uint64_t limit);

}  // namespace headlane::models::internal
