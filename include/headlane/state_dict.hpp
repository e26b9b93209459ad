// StateDict: the tensors that layers are made of, by name.
#pragma once

#include <headlane/view.hpp>

#include <functional>
#include <map>
#include <string>

namespace headlane {

/// As state_dict() of a PyTorch module has them; float32, any strides. It owns no elements, and layers copy what they need.
using StateDict = std::map<std::string, AnyView<const float>, std::less<>>;

}  // namespace headlane
