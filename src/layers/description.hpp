// Texts of what the ranks of a team compare: "x 2 x 7 x 70 of float32, scale 0.5, causal 1".
#pragma once

#include "core/check.hpp"

#include <headlane/attention_options.hpp>
#include <headlane/dtype.hpp>
#include <headlane/state_dict.hpp>
#include <headlane/view.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace headlane::internal {

/// Appends names and values to a text, with commas between them: messages show those that differ.
class Description {
 public:
  explicit Description(std::string& text) : text_(text) {}

  Description& add(std::string_view name);
  Description& add(std::string_view name, std::string_view value);
  Description& add(std::string_view name, const char* value) { return add(name, std::string_view(value)); }
  Description& add(std::string_view name, DType type) { return add(name, std::string_view(name_of(type))); }
  Description& add(std::string_view name, Index value);
  Description& add(std::string_view name, int value) { return add(name, Index{value}); }
  Description& add(std::string_view name, bool value) { return add(name, Index{value}); }
  /// With all its digits.
  Description& add(std::string_view name, float value);

  /// Shape and strides of x [batch, length, width], and the type of its elements.
  template <class T>
  Description& add_rows(std::string_view name, const View<T, 3>& rows, DType type) {
    return add_strided(name, rows.shape, rows.strides, type);
  }
  Description& add_rows(std::string_view name, const Operand& rows, DType type) {
    const auto axes = static_cast<std::size_t>(rows.rank);
    return add_strided(name, {rows.shape, axes}, {rows.strides, axes}, type);
  }
  /// Integers [batch, length] by value.
  Description& add_ids(std::string_view name, const View<const Index, 2>& ids);
  /// All options but the number of threads: numbers, vectors and tables by value, others by shape.
  Description& add_options(const AttentionOptions& options);

  /// The tensors prefix + part + name of a state dict that there are, by shape and elements; those
  /// of a share, or of a packed matrix whose columns are no multiple of 32, by shape alone.
  Description& add_tensors(const StateDict& state, std::string_view prefix, std::string_view part,
                           std::span<const char* const> names);

 private:
  void add_tensor(const StateDict& state, const std::string& full_name, std::string_view name);
  Description& add_strided(std::string_view name, std::span<const Index> shape, std::span<const Index> strides,
                           DType type);
  // These go on with the last name.
  Description& with(std::string_view word);
  Description& with(const char* word) { return with(std::string_view(word)); }
  Description& with(Index number);
  Description& with_shape(std::span<const Index> shape);
  /// A number that tells contents apart.
  Description& with_digest(std::uint64_t digest);

  std::string& text_;
};

}  // namespace headlane::internal
