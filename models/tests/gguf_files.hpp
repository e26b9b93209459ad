// GGUF files, valid and invalid.
#pragma once

#include "made_files.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace headlane::test {

template <class T>
std::string bytes_of_one(T x) {
  return bytes_of(std::vector<T>{x});
}

/// Text as GGUF has it: behind its length.
inline std::string gguf_text(const std::string& text) { return bytes_of_one<std::uint64_t>(text.size()) + text; }

/// Numbers that stand for types.
enum GgufNumber : std::uint32_t {
  gguf_f32 = 0,
  gguf_f16 = 1,
  gguf_q4_0 = 2,
  gguf_q8_0 = 8,
  gguf_q4_k = 12,
  gguf_q5_k = 13,
  gguf_q6_k = 14,
  gguf_bf16 = 30,
};

/// Keys and tensors, one after the other; each part of the result can be changed.
struct GgufBuilder {
  std::string magic = "GGUF";
  std::uint32_t version = 3, alignment = 32;
  std::uint64_t keys = 0, tensors = 0;
  std::string fields{}, infos{}, data{};

  /// A value of type `type`, as its bytes.
  GgufBuilder& value(const std::string& key, std::uint32_t type, const std::string& bytes) {
    ++keys;
    fields += gguf_text(key) + bytes_of_one(type) + bytes;
    return *this;
  }
  template <class T>
  GgufBuilder& number(const std::string& key, std::uint32_t type, T x) {
    return value(key, type, bytes_of_one(x));
  }
  GgufBuilder& text(const std::string& key, const std::string& text) { return value(key, 8, gguf_text(text)); }
  /// An array of `count` elements.
  GgufBuilder& array(const std::string& key, std::uint32_t type, std::uint64_t count, const std::string& bytes) {
    return value(key, 9, bytes_of_one(type) + bytes_of_one(count) + bytes);
  }

  /// Sizes from the innermost axis to the outermost one, as in the file.
  GgufBuilder& info(const std::string& name, const std::vector<std::uint64_t>& sizes, std::uint32_t type,
                    std::uint64_t offset) {
    ++tensors;
    infos += gguf_text(name) + bytes_of_one(static_cast<std::uint32_t>(sizes.size())) + bytes_of(sizes) +
             bytes_of_one(type) + bytes_of_one(offset);
    return *this;
  }
  GgufBuilder& tensor(const std::string& name, const std::vector<std::uint64_t>& sizes, std::uint32_t type,
                      const std::string& content) {
    info(name, sizes, type, data.size());
    data += content;
    data.resize((data.size() + alignment - 1) / alignment * alignment);
    return *this;
  }

  [[nodiscard]] std::string header() const {
    return magic + bytes_of_one(version) + bytes_of_one(tensors) + bytes_of_one(keys) + fields + infos;
  }
  [[nodiscard]] std::string file() const {
    std::string all = header();
    all.resize((all.size() + alignment - 1) / alignment * alignment);
    return all + data;
  }
};

}  // namespace headlane::test
