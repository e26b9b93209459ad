// StateDict: the tensors that a layer is constructed from, by name.
#pragma once

#include <headlane/packed_matrix.hpp>
#include <headlane/view.hpp>

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace headlane {

/// Names and tensors as state_dict() of a PyTorch module returns them: float32, any strides.
/// It does not own the elements; layers copy what they need.
struct StateDict : std::map<std::string, AnyView<const float>, std::less<>> {
  using map::map;

  /// Weights that are packed already, as a file stores them: [in, out] under the name of a tensor
  /// [out, in]. A layer keeps their numbers and scales, whatever its option `weights` says.
  /// Matrices that it stores as one, those of q, k and v, are of the same type.
  std::map<std::string, const PackedMatrix*, std::less<>> packed;

  /// Matrices of which `*this` has only the rows of this rank of a Team (Shares, in units of
  /// columns_of_share), by the rows that all ranks have together. Of q, k and v, these are the rows
  /// of its heads, in units of a kv head.
  std::map<std::string, Index, std::less<>> shares;
};

/// A tensor that owns its elements, contiguous and row-major.
struct OwnedTensor {
  std::vector<Index> shape;
  std::vector<float> data;

  bool operator==(const OwnedTensor&) const = default;
};

/// The tensors that state_dict() of a layer returns (layers.hpp).
using OwnedStateDict = std::map<std::string, OwnedTensor, std::less<>>;

/// Views of the tensors, for the constructor of a layer; valid as long as the tensors.
inline StateDict views_of(const OwnedStateDict& owned) {
  StateDict views;
  for (const auto& [name, tensor] : owned) {
    AnyView<const float>& view = views[name];
    view.data = tensor.data.data();
    view.rank = static_cast<int>(tensor.shape.size());
    Index stride = 1;
    for (std::size_t axis = tensor.shape.size(); axis-- > 0; stride *= tensor.shape[axis]) {
      view.shape[axis] = tensor.shape[axis];
      view.strides[axis] = stride;
    }
  }
  return views;
}

}  // namespace headlane
