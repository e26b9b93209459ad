// The files and tensors of a Checkpoint.
#pragma once

#include "io/error.hpp"
#include "io/input_file.hpp"
#include "io/safetensors.hpp"

#include <headlane/models/checkpoint.hpp>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace headlane::models {
namespace internal {

/// An open file and the tensors in it.
struct Shard {
  std::shared_ptr<const InputFile> file;
  StoredTensors tensors;
};

}  // namespace internal

struct HEADLANE_HIDDEN Checkpoint::Contents {
  struct Entry {
    std::shared_ptr<const internal::InputFile> file;
    internal::StoredTensor stored;
  };
  std::filesystem::path folder;
  std::map<std::string, Entry, std::less<>> entries;

  void add_all(internal::Shard shard) {
    for (auto& [name, stored] : shard.tensors)
      entries.emplace_hint(entries.end(), name, Entry{shard.file, std::move(stored)});
  }

  void add_indexed(const std::filesystem::path& index);

  [[nodiscard]] const Entry& at(std::string_view name) const {
    const auto found = entries.find(name);
    if (found == entries.end()) internal::fail(folder, "there is no tensor ", internal::in_quotes(name));
    return found->second;
  }
};

}  // namespace headlane::models
