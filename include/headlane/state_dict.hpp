// StateDict: the tensors that layers are made of, by name.
#pragma once

#include <headlane/view.hpp>

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace headlane {

/// As state_dict() of a PyTorch module has them; float32, any strides. It owns no elements, and layers copy what they need.
using StateDict = std::map<std::string, AnyView<const float>, std::less<>>;

/// A tensor with its elements, dense and row-major.
struct OwnedTensor {
  std::vector<Index> shape;
  std::vector<float> data;

  bool operator==(const OwnedTensor&) const = default;
};

/// The tensors that a layer's state_dict() returns (layers.hpp).
using OwnedStateDict = std::map<std::string, OwnedTensor, std::less<>>;

/// Views on its tensors, for the constructor of a layer; valid as long as they are.
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
