// Temporary folders, files in memory, valid and invalid safetensors files.
#pragma once

#include <headlane/index.hpp>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

namespace headlane::test {

/// A temporary folder, removed with its contents.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "headlane-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = std::filesystem::canonical(name);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  void write(const std::string& name, std::string_view content) const {
    remove(name);  // a new file: it may be open, and some file systems wait for the disk when one is overwritten
    std::ofstream out(path_ / name, std::ios::binary);
    out.write(content.data(), static_cast<std::streamsize>(content.size()));
    if (!out.flush()) throw std::runtime_error("cannot write " + name);
  }

  void remove(const std::string& name) const { std::filesystem::remove_all(path_ / name); }

 private:
  std::filesystem::path path_;
};

/// A file in memory, for many short contents in succession.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(memfd_create("headlane", MFD_CLOEXEC)) {
    if (descriptor_ < 0) throw std::runtime_error("no file in memory");
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { close(descriptor_); }

  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

  void write(std::string_view content) const {
    if (ftruncate(descriptor_, 0) != 0 ||
        pwrite(descriptor_, content.data(), content.size(), 0) != static_cast<ssize_t>(content.size()))
      throw std::runtime_error("cannot write to memory");
  }

 private:
  int descriptor_;
};

/// The bytes of the values.
template <class T>
std::string bytes_of(const std::vector<T>& values) {
  std::string result(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(result.data(), values.data(), result.size());
  return result;
}

/// A file with this header, valid or not.
inline std::string safetensors(std::string_view header, std::string_view data) {
  return bytes_of(std::vector<std::uint64_t>{header.size()}).append(header).append(data);
}

/// A header for tensors that are stored back to back, and their data.
class FileBuilder {
 public:
  FileBuilder& add(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& data) {
    const std::size_t begin = data_.size();
    data_ += data;
    std::string text = "\"";
    text.append(name).append(R"(":{"dtype":")").append(dtype).append(R"(","shape":)").append(shape);
    text.append(R"(,"data_offsets":[)").append(std::to_string(begin)).append(",").append(std::to_string(data_.size()));
    return entry(text.append("]}"));
  }

  FileBuilder& add(const std::string& name, const std::string& dtype, const std::vector<Index>& shape,
                   const std::string& data) {
    std::string text;
    for (const Index size : shape) text.append(text.empty() ? "[" : ",").append(std::to_string(size));
    return add(name, dtype, text + "]", data);
  }

  /// Adds "name":value verbatim.
  FileBuilder& entry(const std::string& text) {
    header_.append(header_.empty() ? "" : ",").append(text);
    return *this;
  }

  /// The length of the header, modulo 8, is `remainder`; it is padded with blanks.
  [[nodiscard]] std::string file(std::size_t remainder = 0) const {
    std::string header = "{";
    header.append(header_).append("}");
    while (header.size() % 8 != remainder) header += ' ';
    return safetensors(header, data_);
  }

 private:
  std::string header_, data_;
};

}  // namespace headlane::test
