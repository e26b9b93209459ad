#include <headlane/models/gguf.hpp>

#include "core/floating_point_scope.hpp"
#include "io/error.hpp"
#include "io/gguf_header.hpp"
#include "io/input_file.hpp"
#include "io/pack_weight.hpp"
#include "io/tensor_checks.hpp"
#include "io/tensor_memory.hpp"

#include <algorithm>
#include <utility>

namespace headlane::models {

using namespace internal;

struct HEADLANE_HIDDEN GgufFile::Contents {
  InputFile file;
  GgufHeader header;

  explicit Contents(const std::filesystem::path& path) : file(path), header(read_gguf(file)) {}

  [[nodiscard]] const GgufTensor& at(std::string_view name) const {
    const auto found = header.tensors.find(name);
    if (found == header.tensors.end()) fail(file.path(), "there is no tensor ", in_quotes(name));
    return found->second;
  }

  /// Calls f(blocks, position of the first element) for parts of the data that stay in the cache.
  template <class F>
  void read_blocks(const GgufTensor& tensor, std::string_view subject, const F& f) const {
    const GgufType& type = *tensor.type;
    const std::uint64_t part = std::min((std::uint64_t{1} << 18) / type.bytes * type.bytes, tensor.size);
    const auto buffer = std::make_unique_for_overwrite<std::byte[]>(part);
    for (std::uint64_t done = 0; done < tensor.size; done += part) {
      const std::span<std::byte> blocks(buffer.get(), std::min(part, tensor.size - done));
      file.read(tensor.offset + done, blocks, subject);
      f(std::span<const std::byte>(blocks), done / type.bytes * type.elements);
    }
  }

  template <class T>
  [[nodiscard]] PackedMatrix pack_elements(const GgufTensor& tensor, std::string_view subject,
                                           const NumbersOptions& options) const {
    const auto elements = std::make_unique_for_overwrite<T[]>(tensor.size / sizeof(T));
    file.read(tensor.offset, std::as_writable_bytes(std::span(elements.get(), tensor.size / sizeof(T))), subject);
    const View<const T, 2> w(elements.get(), {tensor.shape[0], tensor.shape[1]});
    return PackedMatrix::from_numbers(w.transposed(), options);
  }

  [[nodiscard]] PackedMatrix pack_groups(const GgufTensor& tensor, std::string_view subject,
                                         const NumbersOptions& options) const {
    const std::uint64_t groups = tensor.size / tensor.type->bytes;
    const auto numbers = std::make_unique_for_overwrite<std::int8_t[]>(groups * 32);
    const auto scales = std::make_unique_for_overwrite<float16[]>(groups);
    read_blocks(tensor, subject, [&](std::span<const std::byte> blocks, std::uint64_t first) {
      split_blocks(blocks, *tensor.type->stored, numbers.get() + first, scales.get() + first / 32);
    });
    const View<const std::int8_t, 2> q(numbers.get(), {tensor.shape[0], tensor.shape[1]});
    const View<const float16, 2> s(scales.get(), {tensor.shape[0], tensor.shape[1] / 32});
    return PackedMatrix::from_numbers(q.transposed(), s.transposed(), *tensor.type->stored, options);
  }

  [[nodiscard]] Tensor load(const GgufTensor& tensor, std::string_view subject) const {
    const headlane::internal::FloatingPointScope scope;
    AnyView<const float> view = dense_view(tensor.shape, file.path(), subject);
    std::shared_ptr<float> memory = allocate_floats(tensor.size / tensor.type->bytes * tensor.type->elements);
    read_blocks(tensor, subject, [&](std::span<const std::byte> blocks, std::uint64_t first) {
      tensor.type->dequantise(blocks, memory.get() + first);
    });
    view.data = memory.get();
    return {view, std::move(memory)};
  }

  [[nodiscard]] PackedMatrix pack(const GgufTensor& tensor, std::string_view subject,
                                  const PackWeightOptions& options) const {
    const std::optional<DType> stored = tensor.type->stored;
    const DType type = options.type.value_or(stored.value_or(DType::int8_group32));
    const NumbersOptions as_stored{.clamp = options.clamp, .num_threads = options.num_threads};
    if (type != stored || type == DType::float32) {
      const Tensor loaded = load(tensor, subject);
      const View<const float, 2> w(loaded.view().data, {tensor.shape[0], tensor.shape[1]});
      return PackedMatrix(w.transposed(), {.type = type, .num_threads = options.num_threads});
    }
    if (type == DType::float16) return pack_elements<float16>(tensor, subject, as_stored);
    if (type == DType::bfloat16) return pack_elements<bfloat16>(tensor, subject, as_stored);
    return pack_groups(tensor, subject, as_stored);
  }
};

namespace {

/// Throws CheckpointError unless the tensor can be loaded.
void check_loadable(const GgufTensor& tensor, const std::filesystem::path& path, std::string_view subject) {
  if (tensor.type->dequantise == nullptr) {
    fail(path, subject, "is of ", tensor.type->name, ", only F32, F16, BF16, Q8_0, Q4_0, Q4_K and Q6_K can be loaded");
  }
}

}  // namespace

GgufFile::GgufFile(const std::filesystem::path& file) : contents_(std::make_shared<const Contents>(file)) {}

const GgufFile::Contents& GgufFile::contents(const char* function) const {
  return unmoved(contents_, function, "file");
}

bool GgufFile::contains(std::string_view name) const {
  return contents("GgufFile::contains").header.tensors.contains(name);
}

std::vector<Index> GgufFile::shape(std::string_view name) const { return contents("GgufFile::shape").at(name).shape; }

std::string_view GgufFile::type(std::string_view name) const { return contents("GgufFile::type").at(name).type->name; }

std::vector<std::string> GgufFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : contents("GgufFile::names").header.tensors) names.push_back(name);
  return names;
}

std::vector<std::string> GgufFile::keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, field] : contents("GgufFile::keys").header.fields) keys.push_back(key);
  return keys;
}

std::optional<GgufValue> GgufFile::metadata(std::string_view key) const {
  const Contents& all = contents("GgufFile::metadata");
  const auto found = all.header.fields.find(key);
  if (found == all.header.fields.end()) return {};
  return value_of(all.header, found->second, all.file.path(), key);
}

Tensor GgufFile::load(std::string_view name) const {
  const Contents& all = contents("GgufFile::load");
  const GgufTensor& tensor = all.at(name);
  const std::string subject = subject_of(name);
  check_loadable(tensor, all.file.path(), subject);
  return all.load(tensor, subject);
}

Tensor GgufFile::load(std::string_view name, std::span<const Index> shape) const {
  const Contents& all = contents("GgufFile::load");
  check_shape(all.file.path(), name, all.at(name).shape, shape);
  return load(name);
}

PackedMatrix GgufFile::pack(std::string_view name, const PackWeightOptions& options) const {
  const Contents& all = contents("GgufFile::pack");
  check_pack_options("GgufFile::pack", options);
  const GgufTensor& tensor = all.at(name);
  const std::string subject = subject_of(name);
  check_loadable(tensor, all.file.path(), subject);
  if (tensor.shape.size() != 2)
    fail(all.file.path(), subject, "has the shape ", listed(tensor.shape), ", a matrix is expected");
  return packed_from(all.file.path(), subject, [&] { return all.pack(tensor, subject, options); });
}

}  // namespace headlane::models
