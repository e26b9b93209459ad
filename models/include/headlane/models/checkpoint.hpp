// Checkpoint: the weights of a model in safetensors format, as in Hugging Face folders.
#pragma once

#include <headlane/dtype.hpp>
#include <headlane/export.h>
#include <headlane/models/checkpoint_error.hpp>
#include <headlane/packed_matrix.hpp>
#include <headlane/view.hpp>

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headlane::models {

/// A float32 tensor in memory of its own; float16 and bfloat16 are converted exactly.
///
/// Memory: reference-counted; copies share it. It outlives the Checkpoint and its files.
class HEADLANE_API Tensor {
 public:
  /// An empty tensor, without data.
  Tensor() = default;
  Tensor(const AnyView<const float>& view, std::shared_ptr<const void> memory)
      : view_(view), memory_(std::move(memory)) {}

  /// Contiguous, row-major; rank 0 is a single element. Valid as long as this Tensor or a copy.
  [[nodiscard]] const AnyView<const float>& view() const { return view_; }

 private:
  AnyView<const float> view_;
  std::shared_ptr<const void> memory_;
};

struct PackWeightOptions {
  /// How elements are stored. Not given: as in the file. Any other type than that: packed from the
  /// float32 values (PackOptions).
  std::optional<DType> type = {};
  /// Numbers of -128, which int8 of PackedMatrix does not have, become -127. Otherwise they are an
  /// error.
  bool clamp = false;
  int num_threads = 0;  ///< maximum number of threads for packing; 0: num_threads() (runtime.hpp)
};

/// All tensors of a folder.
///
/// Files: the constructor reads only the headers; load() reads one tensor, anew each time. The
///   files stay open and must not change: loading from a file that was truncated or written to
///   after it was opened is an error, as far as its size and modification time tell. A file that
///   was replaced by renaming another one is read as it was. Files are not memory-mapped, since
///   reading a mapped file that was truncated raises SIGBUS.
/// Validation: names, sizes and offsets of all tensors are checked when the folder is opened, as
///   strictly as the format specifies: no overlaps, no gaps, no duplicate names.
/// Threads: immutable; any number of threads may use it concurrently. Copies share its contents.
/// Errors: CheckpointError; std::bad_alloc; std::invalid_argument if it was moved from (it may
///   still be destroyed and assigned to).
class HEADLANE_API Checkpoint {
 public:
  /// Opens model.safetensors, or else model.safetensors.index.json and the files it lists.
  explicit Checkpoint(const std::filesystem::path& folder);

  [[nodiscard]] bool contains(std::string_view name) const;
  /// Any rank and element type.
  [[nodiscard]] std::vector<Index> shape(std::string_view name) const;
  /// All names, in ascending order.
  [[nodiscard]] std::vector<std::string> names() const;

  /// Reads a tensor of float32, float16 or bfloat16 with at most max_rank axes.
  [[nodiscard]] Tensor load(std::string_view name) const;
  /// The same; an error unless the tensor has exactly this shape.
  [[nodiscard]] Tensor load(std::string_view name, std::span<const Index> shape) const;
  [[nodiscard]] Tensor load(std::string_view name, std::initializer_list<Index> shape) const {
    return load(name, std::span<const Index>(shape.begin(), shape.size()));
  }

  /// Rows first … end-1 along the first axis of a tensor, of which nothing else is read; an error
  /// unless the whole tensor has exactly this shape. std::invalid_argument for other rows.
  [[nodiscard]] Tensor load_rows(std::string_view name, std::span<const Index> shape, Index first, Index end) const;
  [[nodiscard]] Tensor load_rows(std::string_view name, std::initializer_list<Index> shape, Index first,
                                 Index end) const {
    return load_rows(name, std::span<const Index>(shape.begin(), shape.size()), first, end);
  }

  /// A hash of the names, types and shapes of all tensors.
  [[nodiscard]] std::uint64_t fingerprint() const;

  /// Packs the weight [out, in] of a layer as a right operand [in, out]: gemm(x, packed, y) is
  /// y = x · wᵀ. `prefix` ends with a dot: "encoder.layer.0.output.dense.".
  ///
  /// Types, unless the options name another one:
  ///     weight of F32, F16 or BF16               float32, float16, bfloat16
  ///   as compressed-tensors stores it, with weight_scale of F32, F16 or BF16:
  ///     weight of I8, a scale for each row       int8
  ///     weight of I8, scales for groups          int8_group32
  ///     weight_packed of I32, 8 bits             as of I8
  ///     weight_packed of I32, 4 bits             int4_group32
  ///   weight_scale is [1], [out] or [out, 1] for rows, [out, groups] for groups of in / groups
  ///   columns, a multiple of 32; weight_packed needs weight_shape [2], and 32 columns at least.
  /// Numbers: those of the file. A group is stored as several of 32 with the same scale.
  /// Scales: those of the file for int8; for groups rounded to float16, to nearest, ties to even:
  ///   those of F16, and of BF16 from 2^-14 to 65280, are exact.
  /// Errors: CheckpointError if the tensors are others or do not fit, for zero points other than 0
  ///   and for groups in another order (weight_g_idx); for what PackedMatrix does not have: scales
  ///   that are not finite, and a number of -128 unless options.clamp is set (compressed-tensors
  ///   stores the largest number of a row so if it is negative); std::invalid_argument for options
  ///   that are wrong.
  [[nodiscard]] PackedMatrix pack(std::string_view prefix, const PackWeightOptions& options = {}) const;
  /// Whether the layer has its weight as compressed-tensors quantises it: with a weight_scale.
  [[nodiscard]] bool is_quantized(std::string_view prefix) const;

 private:
  struct Contents;
  struct LayerReader;
  [[nodiscard]] HEADLANE_HIDDEN const Contents& contents(const char* function) const;
  std::shared_ptr<const Contents> contents_;
};

}  // namespace headlane::models
