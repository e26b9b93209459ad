#include <headlane/models/checkpoint.hpp>

#include "io/checkpoint_contents.hpp"
#include "io/digest.hpp"
#include "io/input_file.hpp"
#include "io/json.hpp"
#include "io/safetensors.hpp"
#include "io/tensor_checks.hpp"
#include "io/tensor_memory.hpp"

#include <headlane/convert.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <system_error>
#include <utility>

namespace headlane::models {

using namespace internal;

namespace {

constexpr std::size_t max_index_bytes = 100'000'000;

Shard open_shard(const std::filesystem::path& path) {
  Shard shard{std::make_shared<InputFile>(path), {}};
  shard.tensors = read_safetensors(*shard.file);
  return shard;
}

/// True for the name of a file in the same folder, without any path.
bool is_plain_name(std::string_view name) {
  constexpr std::size_t max_length = 255;  // NAME_MAX
  const bool leaves = name.find_first_of(std::string_view("/\\\0", 3)) != std::string_view::npos;
  return !name.empty() && name.size() <= max_length && name != "." && !leaves &&
         name.find("..") == std::string_view::npos;
}

/// Reads a tensor of 16-bit floats and converts it to float32, in blocks that stay in the cache.
template <class T>
void read_halves(const InputFile& file, const StoredTensor& stored, std::string_view subject, float* out) {
  constexpr std::uint64_t block = std::uint64_t{1} << 17;
  const std::uint64_t elements = stored.size / sizeof(T), at_once = std::min(block, elements);
  const auto buffer = std::make_unique_for_overwrite<T[]>(at_once);
  for (std::uint64_t done = 0; done < elements; done += at_once) {
    const std::span<T> part(buffer.get(), std::min(at_once, elements - done));
    file.read(stored.offset + done * sizeof(T), std::as_writable_bytes(part), subject);
    const Index n = std::ssize(part);
    convert(View<const T, 1>(part.data(), {n}), View<float, 1>(out + done, {n}), {.num_threads = 1});
  }
}

/// Reads a tensor, or some of its rows.
Tensor read(const InputFile& file, const StoredTensor& stored, std::string_view subject) {
  const bool is_float = stored.dtype == "F32";
  if (!is_float && stored.dtype != "F16" && stored.dtype != "BF16")
    fail(file.path(), subject, "is of ", stored.dtype, ", only F32, F16 and BF16 can be loaded");
  AnyView<const float> view = dense_view(stored.shape, file.path(), subject);
  const std::uint64_t elements = stored.size / (is_float ? sizeof(float) : sizeof(std::uint16_t));
  std::shared_ptr<float> memory = allocate_floats(elements);
  if (is_float) file.read(stored.offset, std::as_writable_bytes(std::span(memory.get(), elements)), subject);
  else if (stored.dtype == "F16") read_halves<float16>(file, stored, subject, memory.get());
  else read_halves<bfloat16>(file, stored, subject, memory.get());
  view.data = memory.get();
  return {view, std::move(memory)};
}

}  // namespace

/// Ignores tensors of a shard that the index does not assign to it.
void Checkpoint::Contents::add_indexed(const std::filesystem::path& index) {
  const Json content = read_json_object(index, max_index_bytes);
  const Json* map = content.find("weight_map");
  if (map == nullptr) fail(index, "has no weight_map");
  const auto* members = map->as<Json::Object>();
  if (members == nullptr) fail(index, "weight_map is not an object but ", map->type());
  std::map<std::string, Shard, std::less<>> shards;
  for (const auto& [name, value] : *members) {
    const auto* file = value.as<std::string>();
    if (file == nullptr) fail(index, subject_of(name), "its file is not a string but ", value.type());
    if (!is_plain_name(*file))
      fail(index, subject_of(name), in_quotes(*file), " is not the name of a file in this folder");
    auto shard = shards.find(*file);
    if (shard == shards.end()) shard = shards.emplace(*file, open_shard(folder / *file)).first;
    const auto stored = shard->second.tensors.find(name);
    if (stored == shard->second.tensors.end()) {
      fail(folder / *file, "there is no tensor ", in_quotes(name), ", which ", index.filename().string(),
           " says is here");
    }
    entries.emplace(name, Entry{shard->second.file, std::move(stored->second)});
  }
}

Checkpoint::Checkpoint(const std::filesystem::path& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) fail(folder, "there is no such folder");
  auto contents = std::make_shared<Contents>();
  contents->folder = folder;
  const std::filesystem::path single = folder / "model.safetensors", index = folder / "model.safetensors.index.json";
  if (std::filesystem::exists(single, error)) {
    contents->add_all(open_shard(single));
  } else if (std::filesystem::exists(index, error)) {
    contents->add_indexed(index);
  } else {
    fail(folder, "there is neither model.safetensors nor model.safetensors.index.json");
  }
  contents_ = std::move(contents);
}

const Checkpoint::Contents& Checkpoint::contents(const char* function) const {
  return unmoved(contents_, function, "checkpoint");
}

bool Checkpoint::contains(std::string_view name) const {
  return contents("Checkpoint::contains").entries.contains(name);
}

std::vector<Index> Checkpoint::shape(std::string_view name) const {
  return contents("Checkpoint::shape").at(name).stored.shape;
}

std::vector<std::string> Checkpoint::names() const {
  const auto& entries = contents("Checkpoint::names").entries;
  std::vector<std::string> result;
  result.reserve(entries.size());
  for (const auto& [name, entry] : entries) result.push_back(name);
  return result;
}

std::uint64_t Checkpoint::fingerprint() const {
  Digest digest;
  for (const auto& [name, entry] : contents("Checkpoint::fingerprint").entries) {
    digest.add(name);
    digest.add(entry.stored.dtype);
    digest.add(entry.stored.shape);
  }
  return digest.value();
}

Tensor Checkpoint::load(std::string_view name) const {
  const auto& [file, stored] = contents("Checkpoint::load").at(name);
  return read(*file, stored, subject_of(name));
}

Tensor Checkpoint::load(std::string_view name, std::span<const Index> shape) const {
  const auto& [file, stored] = contents("Checkpoint::load").at(name);
  check_shape(file->path(), name, stored.shape, shape);
  return read(*file, stored, subject_of(name));
}

Tensor Checkpoint::load_rows(std::string_view name, std::span<const Index> shape, Index first, Index end) const {
  constexpr const char* function = "Checkpoint::load_rows";
  const auto& [file, stored] = contents(function).at(name);
  check_shape(file->path(), name, stored.shape, shape);
  const Index rows = shape.empty() ? 0 : shape[0];
  const bool are_there = first >= 0 && first <= end && end <= rows;
  headlane::internal::require(are_there, function, ": rows ", first, " … ", end, " of ", name, ", which has ", rows);
  StoredTensor part = stored;
  if (rows > 0) {
    const std::uint64_t of_row = stored.size / static_cast<std::uint64_t>(rows);
    part.shape[0] = end - first;
    part.offset += of_row * static_cast<std::uint64_t>(first);
    part.size = of_row * static_cast<std::uint64_t>(end - first);
  }
  return read(*file, part, subject_of(name));
}

}  // namespace headlane::models
