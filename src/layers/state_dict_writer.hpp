// Collects the tensors of a layer for state_dict().
#pragma once

#include "core/check.hpp"
#include "layers/state_dict_reader.hpp"

#include <headlane/packed_matrix.hpp>
#include <headlane/state_dict.hpp>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headlane::internal {

/// Refuses the state dict of a layer that has only its share of the weights.
inline void require_whole(Caller caller, const Shares& shares) {
  caller.require(!shares.divided(), "the layer has the share of one rank of its team, not the whole weights");
}

class StateDictWriter {
 public:
  explicit StateDictWriter(std::string_view prefix) : prefix_(prefix) {}

  [[nodiscard]] std::string name(std::string_view name) const { return joined(prefix_, name); }

  /// Nothing if the vector is empty.
  void add(std::string_view name, const std::vector<float>& vector);
  /// The weight [out, in] of a packed product, whose columns are the rows of the weight.
  void add(std::string_view name, const PackedMatrix& packed) { append(name, packed, 0, packed.columns()); }
  /// Appends `count` rows of the weight, from row `first` on, to the tensor of this name.
  void append(std::string_view name, const PackedMatrix& packed, Index first, Index count);
  /// All tensors of another layer, whose names are full.
  void add(OwnedStateDict tensors) { dict_.merge(tensors); }

  [[nodiscard]] OwnedStateDict take() { return std::move(dict_); }

 private:
  std::string prefix_;
  OwnedStateDict dict_;
};

}  // namespace headlane::internal
