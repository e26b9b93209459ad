// Reads the tensors of a layer from a state dict.
#pragma once

#include <headlane/linear.hpp>
#include <headlane/state_dict.hpp>

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace headlane::internal {

/// The full name of a tensor or layer within another one.
inline std::string joined(std::string_view prefix, std::string_view name) { return std::string(prefix).append(name); }

/// A size in a shape that may be anything.
constexpr Index any_size = -1;

inline PackedMatrix copy_of(const PackedMatrix& matrix) {
  const PackedMatrix::Columns all[] = {{&matrix, 0, matrix.columns()}};
  return PackedMatrix::joined(all);
}

/// The tensors of one layer. Error messages name the layer and the full name of the tensor.
class StateDictReader {
 public:
  StateDictReader(const char* layer, const StateDict& state, std::string_view prefix)
      : layer_(layer), state_(state), prefix_(prefix) {}

  [[nodiscard]] const char* layer() const { return layer_; }
  [[nodiscard]] std::string name(std::string_view name) const { return joined(prefix_, name); }
  [[nodiscard]] bool has(std::string_view name) const {
    return state_.contains(this->name(name)) || state_.packed.contains(this->name(name));
  }

  /// The transposed matrix, [columns, rows], if it is packed already, or null.
  [[nodiscard]] const PackedMatrix* packed(std::string_view name, Index rows, Index columns) const;

  [[nodiscard]] View<const float, 2> matrix(std::string_view name, Index rows, Index columns) const;
  /// The transposed matrix, [columns, rows], as it is stored, or packed as `type`.
  [[nodiscard]] PackedMatrix weight(std::string_view name, Index rows, Index columns, DType type) const;
  [[nodiscard]] std::vector<float> vector(std::string_view name, Index size) const;
  /// Empty if there is no such tensor.
  [[nodiscard]] std::vector<float> optional_vector(std::string_view name, Index size) const;
  /// The tensors name.weight [out, in] and, if there is one, name.bias [out].
  [[nodiscard]] Linear linear(const std::string& name, Index out, Index in, DType weights, DType activations) const;

 private:
  template <int Rank>
  [[nodiscard]] View<const float, Rank> tensor(std::string_view name, const std::array<Index, Rank>& shape) const;

  const char* layer_;
  const StateDict& state_;
  std::string prefix_;
};

}  // namespace headlane::internal
