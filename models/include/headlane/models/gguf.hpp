// GgufFile: the weights and the metadata of a GGUF file, as llama.cpp and its relatives write them.
#pragma once

#include <headlane/export.h>
#include <headlane/models/checkpoint.hpp>
#include <headlane/packed_matrix.hpp>

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace headlane::models {

/// A value of the metadata: integers of all widths as std::int64_t, floats of both widths as
/// double. Strings have the bytes of the file, by the format UTF-8, which is not checked.
using GgufValue = std::variant<bool, std::int64_t, double, std::string, std::vector<bool>, std::vector<std::int64_t>,
                               std::vector<double>, std::vector<std::string>>;

/// All tensors and all metadata of one file; of a model that is split, each file has its own.
///
/// Format: versions 2 and 3, little-endian.
/// Types: load() and pack() read F32, F16, BF16, Q8_0, Q4_0, Q4_K and Q6_K. Other types that GGUF
///   knows may be in the file; a number that stands for no type is an error.
/// Files: the constructor reads only the header; load() and pack() read one tensor, anew each time.
///   The file stays open and must not change, as that of a Checkpoint.
/// Validation: names, types, sizes, offsets and alignment of all tensors, and the types and lengths
///   of all metadata, are checked when the file is opened: no overlaps, no gaps but for alignment,
///   no bytes behind the last tensor, no duplicate names or keys. In addition, a header has at most
///   100 MB and 65,536 keys, a name or key at most 65,535 bytes, a tensor at most four axes, and
///   arrays hold no arrays. Memory is proportional to the length of the header.
/// Threads: immutable; any number of threads may use it concurrently. Copies share its contents.
/// Errors: CheckpointError, which names the file, and the tensor or key; std::bad_alloc;
///   std::invalid_argument if it was moved from (it may still be destroyed and assigned to).
class HEADLANE_API GgufFile {
 public:
  explicit GgufFile(const std::filesystem::path& file);

  [[nodiscard]] bool contains(std::string_view name) const;
  /// The outermost axis first, as of the view that load() returns: [out, in] of a weight. The file
  /// has the sizes in the other order.
  [[nodiscard]] std::vector<Index> shape(std::string_view name) const;
  /// "F32", "Q4_K" …: the name that ggml has for the type.
  [[nodiscard]] std::string_view type(std::string_view name) const;
  /// All names of tensors, in ascending order.
  [[nodiscard]] std::vector<std::string> names() const;

  /// All keys of the metadata, in ascending order: "general.architecture" …
  [[nodiscard]] std::vector<std::string> keys() const;
  /// The value of a key; nothing if there is no such key. An integer of 2^63 and more is an error.
  [[nodiscard]] std::optional<GgufValue> metadata(std::string_view key) const;

  /// Reads a tensor as float32, dequantised with the operations, in float, of ggml's reference:
  ///     Q8_0  d · q
  ///     Q4_0  d · (q - 8)
  ///     Q4_K  (d · s) · q - (dmin · m)
  ///     Q6_K  (d · s) · (q - 32)
  [[nodiscard]] Tensor load(std::string_view name) const;
  /// The same; an error unless the tensor has exactly this shape.
  [[nodiscard]] Tensor load(std::string_view name, std::span<const Index> shape) const;
  [[nodiscard]] Tensor load(std::string_view name, std::initializer_list<Index> shape) const {
    return load(name, std::span<const Index>(shape.begin(), shape.size()));
  }

  /// Packs a weight [out, in] as a right operand [in, out]: gemm(x, packed, y) is y = x · wᵀ.
  ///
  /// Types, unless the options name another one:
  ///     F16         float16
  ///     BF16        bfloat16
  ///     Q8_0        int8_group32
  ///     Q4_0        int4_group32    bit by bit, and
  ///     F32         float32
  ///     Q4_K, Q6_K  int8_group32, packed from the float32 values as PackOptions has it
  /// Errors: CheckpointError unless it has two axes, and for what PackedMatrix does not have: a
  ///   number of -128 (unless options.clamp is set), scales that are not finite;
  ///   std::invalid_argument for options that are wrong.
  [[nodiscard]] PackedMatrix pack(std::string_view name, const PackWeightOptions& options = {}) const;

 private:
  struct Contents;
  [[nodiscard]] HEADLANE_HIDDEN const Contents& contents(const char* function) const;
  std::shared_ptr<const Contents> contents_;
};

}  // namespace headlane::models
