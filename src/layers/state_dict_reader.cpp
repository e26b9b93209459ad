#include "layers/state_dict_reader.hpp"

#include "core/check.hpp"

#include <cstddef>

namespace headlane::internal {

template <int Rank>
View<const float, Rank> StateDictReader::tensor(std::string_view name, const std::array<Index, Rank>& shape) const {
  const std::string full_name = this->name(name);
  const auto found = state_.find(full_name);
  require(!state_.packed.contains(full_name), layer_, ": ", full_name, " is a PackedMatrix, it must be a tensor");
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

const PackedMatrix* StateDictReader::packed(std::string_view name, Index rows, Index columns) const {
  const std::string full_name = this->name(name);
  const auto found = state_.packed.find(full_name);
  if (found == state_.packed.end()) return nullptr;
  const PackedMatrix* const matrix = found->second;
  require(matrix != nullptr, layer_, ": ", full_name, " is null");
  require(!state_.contains(full_name), layer_, ": ", full_name, " is a tensor and a PackedMatrix");
  const auto fits = [](Index wanted, Index size) { return wanted == any_size || wanted == size; };
  const auto text = [](Index wanted) { return wanted == any_size ? "any" : std::to_string(wanted); };
  require(fits(columns, matrix->rows()) && fits(rows, matrix->columns()), layer_, ": ", full_name,
          " is a PackedMatrix [", matrix->rows(), ", ", matrix->columns(), "], it must be [", text(columns), ", ",
          text(rows), "]");
  return matrix;
}

PackedMatrix StateDictReader::weight(std::string_view name, Index rows, Index columns, DType type) const {
  if (const PackedMatrix* const given = packed(name, rows, columns)) return copy_of(*given);
  return PackedMatrix(matrix(name, rows, columns).transposed(), {.type = type});
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
  const std::string weight_name = name + ".weight";
  StateDict tensors;
  Index rows = 0;
  if (const PackedMatrix* const given = packed(weight_name, out, in)) {
    tensors.packed["weight"] = given;
    rows = given->columns();
  } else {
    const View<const float, 2> weight = matrix(weight_name, out, in);
    tensors["weight"] = weight;
    rows = weight.shape[0];
  }
  if (has(name + ".bias")) tensors["bias"] = tensor<1>(name + ".bias", {rows});
  return Linear(tensors, {}, weights, activations);
}

}  // namespace headlane::internal
