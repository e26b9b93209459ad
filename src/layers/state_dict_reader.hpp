// Reads the tensors of a layer from a state dict.
#pragma once

#include <headlane/linear.hpp>
#include <headlane/state_dict.hpp>
#include <headlane/team.hpp>

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace headlane::internal {

/// The full name of a tensor or layer within another one.
inline std::string joined(std::string_view prefix, std::string_view name) { return std::string(prefix).append(name); }

/// A size in a shape that may be anything.
constexpr Index any_size = -1;

/// A copy of columns begin … end-1.
PackedMatrix columns_of(const PackedMatrix& matrix, Index begin, Index end);

/// How all layers store a weight, and what they do with it.
struct WeightOptions {
  DType weights = DType::float32, activations = DType::float32;
  Team* team = nullptr;
};

/// The elements of a vector that belong to the columns of this rank; none of an empty one.
inline std::vector<float> own_elements(std::vector<float> all, const Shares& columns) {
  if (all.empty() || !columns.divided()) return all;
  return {all.begin() + columns.begin(), all.begin() + columns.end()};
}

/// A weight, transposed: the columns of this rank, [in, shares.own()].
struct OwnWeight {
  PackedMatrix matrix;
  Shares shares;
};

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
  /// The rows that a matrix has on all ranks together, if the state dict has only those of this
  /// one; otherwise null.
  [[nodiscard]] const Index* rows_of_team(std::string_view name) const;
  /// The rows of this rank of a matrix.
  [[nodiscard]] View<const float, 2> own_rows(std::string_view name, Index rows, Index columns, Team* team,
                                              Shares& shares) const;
  /// Requires that the state dict has so many rows of a share.
  void require_share(std::string_view name, Index given, Index wanted) const;
  /// The columns of this rank of the transposed matrix, as it is stored, or packed as `type`.
  [[nodiscard]] OwnWeight weight(std::string_view name, Index rows, Index columns, DType type, Team* team) const;
  [[nodiscard]] std::vector<float> vector(std::string_view name, Index size) const;
  /// Empty if there is no such tensor.
  [[nodiscard]] std::vector<float> optional_vector(std::string_view name, Index size) const;
  /// The tensors name.weight [out, in] and, if there is one, name.bias [out].
  [[nodiscard]] Linear linear(const std::string& name, Index out, Index in, const WeightOptions& options) const;

 private:
  template <int Rank>
  [[nodiscard]] View<const float, Rank> tensor(std::string_view name, const std::array<Index, Rank>& shape) const;

  const char* layer_;
  const StateDict& state_;
  std::string prefix_;
};

}  // namespace headlane::internal
