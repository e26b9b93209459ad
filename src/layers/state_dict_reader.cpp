#include "layers/state_dict_reader.hpp"

#include "core/check.hpp"

#include <cstddef>

namespace headlane::internal {

template <int Rank>
View<const float, Rank> StateDictReader::tensor(std::string_view name, const std::array<Index, Rank>& shape) const {
  const std::string full_name = this->name(name);
  const auto found = state_.find(full_name);
  require(found != state_.end(), layer_, ": the state dict has no ", full_name);
  const AnyView<const float>& tensor = found->second;
  const Operand given = Caller(layer_).operand(full_name.c_str(), tensor);
  require(tensor.rank >= 0 && tensor.rank <= max_rank, layer_, ": ", full_name, " has rank ", tensor.rank,
          ", it must be ", Rank);
  bool fits = tensor.rank == Rank;
  std::string wanted;
  for (int axis = 0; axis < Rank; ++axis) {
    const Index size = shape[static_cast<std::size_t>(axis)];
    fits = fits && (size == any_size || tensor.shape[static_cast<std::size_t>(axis)] == size);
    wanted.append(axis == 0 ? "[" : ", ").append(size == any_size ? "any" : std::to_string(size));
  }
  require(fits, layer_, ": ", full_name, " is ", given, ", it must be ", wanted, "]");
  check_operand(given);
  View<const float, Rank> view;
  view.data = tensor.data;
  for (std::size_t axis = 0; axis < view.shape.size(); ++axis) {
    view.shape[axis] = tensor.shape[axis];
    view.strides[axis] = tensor.strides[axis];
  }
  return view;
}

View<const float, 2> StateDictReader::matrix(std::string_view name, Index rows, Index columns) const {
  return tensor<2>(name, {rows, columns});
}

std::vector<float> StateDictReader::vector(std::string_view name, Index size) const {
  const View<const float, 1> view = tensor<1>(name, {size});
  std::vector<float> result(static_cast<std::size_t>(view.shape[0]));
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = view(static_cast<Index>(i));
  return result;
}

std::vector<float> StateDictReader::optional_vector(std::string_view name, Index size) const {
  return has(name) ? vector(name, size) : std::vector<float>{};
}

Linear StateDictReader::linear(const std::string& name, Index out, Index in, DType weights, DType activations) const {
  const View<const float, 2> weight = matrix(name + ".weight", out, in);
  StateDict tensors{{"weight", weight}};
  if (has(name + ".bias")) tensors["bias"] = tensor<1>(name + ".bias", {weight.shape[0]});
  return Linear(tensors, {}, weights, activations);
}

}  // namespace headlane::internal
