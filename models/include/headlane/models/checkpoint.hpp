// Checkpoint: the weights of a model in the safetensors format, as Hugging Face folders hold them.
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

/// A tensor as float32, in memory of its own; float16 and bfloat16 are converted exactly. It lives as long as a Tensor refers to
/// it, also without the Checkpoint and its files. A copy refers to the same memory.
class HEADLANE_API Tensor {
 public:
  /// An empty one, without data.
  Tensor() = default;
  Tensor(const AnyView<const float>& view, std::shared_ptr<const void> memory)
      : view_(view), memory_(std::move(memory)) {}

  /// Dense, row-major. Rank 0, a single element, is possible. Valid as long as this Tensor or a copy of it is there.
  [[nodiscard]] const AnyView<const float>& view() const { return view_; }

 private:
  AnyView<const float> view_;
  std::shared_ptr<const void> memory_;
};

/// All tensors of a folder. Does not change once it is made: any number of threads may use it at the same time, and copies share
/// what they refer to.
///
/// Opening reads the headers alone; load() reads its tensor, each time anew. Files stay open while the Checkpoint is there and must
/// not change meanwhile: what is loaded from a file that was truncated or written to after it was opened is an error, as far as
/// its size and time of modification tell. They are not mapped into memory: reading a mapped file that was truncated would end
/// the process with SIGBUS. A file that was replaced (another one renamed to its name) is read as it was.
///
/// Names of tensors, their sizes and places are checked when the folder is opened, as strictly as the format says: data without
/// overlaps or gaps, no name twice. Errors are CheckpointError, or std::bad_alloc; of a Checkpoint that was moved
/// from, which may be destroyed and assigned to, std::invalid_argument.
class HEADLANE_API Checkpoint {
 public:
  /// Opens model.safetensors, or else model.safetensors.index.json and the files that it names.
  explicit Checkpoint(const std::filesystem::path& folder);

  [[nodiscard]] bool contains(std::string_view name) const;
  /// Any rank, any type of elements.
  [[nodiscard]] std::vector<Index> shape(std::string_view name) const;
  /// In ascending order.
  [[nodiscard]] std::vector<std::string> names() const;

  /// Of float32, float16 or bfloat16 and at most max_rank axes.
  [[nodiscard]] Tensor load(std::string_view name) const;
  /// An error unless the shape is exactly this one.
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
