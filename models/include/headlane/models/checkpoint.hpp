// Checkpoint: the weights of a model in safetensors format, as in Hugging Face folders.
#pragma once

#include <headlane/export.h>
#include <headlane/models/checkpoint_error.hpp>
#include <headlane/view.hpp>

#include <filesystem>
#include <initializer_list>
#include <memory>
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

 private:
  struct Contents;
  [[nodiscard]] HEADLANE_HIDDEN const Contents& contents(const char* function) const;
  std::shared_ptr<const Contents> contents_;
};

}  // namespace headlane::models
