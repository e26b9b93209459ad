// Code shared by the fuzz targets: writes the parts of an input to the files of a folder, and
// checks error messages.
#pragma once

#include "made_files.hpp"

#include <headlane/models/checkpoint_error.hpp>
#include <nlohmann/json.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>

namespace headlane::fuzz {

/// Ends the process as a sanitizer would.
[[noreturn]] inline void found(const char* what, std::string_view detail) {
  std::fprintf(stderr, "%s: %.*s\n", what, static_cast<int>(detail.size()), detail.data());
  std::abort();
}

/// No control characters, UTF-8, not endless: a path may be PATH_MAX bytes.
inline void check_message(const std::string& message) {
  if (message.size() > 6000) found("message too long", message);
  for (const char c : message)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) found("control character in message", message);
  try {
    (void)nlohmann::json(message).dump();
  } catch (const nlohmann::json::exception&) {
    found("message is not UTF-8", message);
  }
}

/// Only CheckpointError may come out of a reader.
template <class Call>
void expect_checkpoint_error(const Call& call) {
  try {
    call();
  } catch (const models::CheckpointError& error) {
    check_message(error.what());
  } catch (const std::exception& error) {
    found("another exception", error.what());
  }
}

/// Files with these names; each is there if its part of the input is not empty. Parts end with
/// the control character RS, which JSON cannot have.
template <std::size_t n>
class InputFolder {
 public:
  explicit InputFolder(const std::array<const char*, n>& names) : names_(names) {}

  [[nodiscard]] const std::filesystem::path& path() const { return folder_.path(); }
  [[nodiscard]] const test::Folder& folder() const { return folder_; }

  /// The last part is all that is left.
  void write(std::string_view input) {
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t end = i + 1 < n ? input.find('\x1e') : std::string_view::npos;
      write(i, input.substr(0, end));
      input.remove_prefix(end == std::string_view::npos ? input.size() : end + 1);
    }
  }

 private:
  void write(std::size_t i, std::string_view content) {
    const std::filesystem::path path = folder_.path() / names_[i];
    if (content.empty() != there_[i]) {
      if (!content.empty()) files_[i].write(content);
      return;
    }
    there_[i] = !content.empty();
    if (content.empty()) {
      std::filesystem::remove(path);
      return;
    }
    files_[i].write(content);
    std::filesystem::create_directories(path.parent_path());
    std::filesystem::create_symlink(files_[i].path(), path);
  }

  std::array<const char*, n> names_;
  test::Folder folder_;
  std::array<test::MemoryFile, n> files_;
  std::array<bool, n> there_{};
};

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace headlane::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
