// Tensors of a state dict, and checks of forward().
#include "layers/state_dict_reader.hpp"

#include "attention/check.hpp"

#include <iterator>

namespace headlane::internal {

bool Weights::has(std::string_view name) const { return state_.contains(this->name(name)); }

template <int Rank>
View<const float, Rank> Weights::tensor(std::string_view name, const std::array<Index, Rank>& shape) const {
  const std::string whole = this->name(name);
  const auto found = state_.find(whole);
  require(found != state_.end(), layer_, ": the state dict has no ", whole);
  const AnyView<const float>& tensor = found->second;
  const Operand given = operand(layer_, whole.c_str(), tensor);
  require(tensor.rank >= 0 && tensor.rank <= max_rank, layer_, ": ", whole, " has rank ", tensor.rank, ", it must be ",
          Rank);
  bool fits = tensor.rank == Rank;
  std::string wanted;
  for (int axis = 0; axis < Rank; ++axis) {
    const Index size = shape[static_cast<std::size_t>(axis)];
    fits = fits && (size < 0 || tensor.shape[static_cast<std::size_t>(axis)] == size);
    append(wanted, axis == 0 ? "[" : ", ");
    if (size < 0) append(wanted, "any");
    else append(wanted, size);
  }
  require(fits, layer_, ": ", whole, " is ", given, ", it must be ", wanted, "]");
  check_operand(given);
  View<const float, Rank> view;
  view.data = tensor.data;
  for (std::size_t axis = 0; axis < view.shape.size(); ++axis) {
    view.shape[axis] = tensor.shape[axis];
    view.strides[axis] = tensor.strides[axis];
  }
  return view;
}

View<const float, 2> Weights::matrix(std::string_view name, Index rows, Index columns) const {
  return tensor<2>(name, {rows, columns});
}

std::vector<float> Weights::vector(std::string_view name, Index size) const {
  const View<const float, 1> view = tensor<1>(name, {size});
  std::vector<float> result(static_cast<std::size_t>(view.shape[0]));
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = view(i);
  return result;
}

std::vector<float> Weights::vector_if_any(std::string_view name, Index size) const {
  return has(name) ? vector(name, size) : std::vector<float>{};
}

void check_forward(const char* function, const View<const float, 3>& x, Index in, const View<float, 3>& y, Index out,
                   bool in_place, int num_threads) {
  const Operand of_x = operand(function, "x", x), of_y = operand(function, "y", y);
  check_operand(of_x);
  check_output(of_y);
  check_same(of_x, 0, "batch elements", of_y, 0, "batch elements");
  check_same(of_x, 1, "rows a batch element", of_y, 1, "rows a batch element");
  require(x.shape[2] == in, function, ": x is ", of_x, ", the layer takes rows of ", in);
  require(y.shape[2] == out, function, ": y is ", of_y, ", the layer gives rows of ", out);
  if (in_place && in == out) check_elementwise(of_x, of_y);
  else check_no_overlap(of_y, of_x);
  check_threads(function, num_threads);
}

void check_layer_options(const char* function, const AttentionOptions& options, const Operand& x, const Operand& y) {
  for_each_input(function, options, [&](const Operand& input) {
    check_operand(input);
    check_no_overlap(y, input);
  });
  require(!options.sum, function, ": parts for merge() (sum) are not for layers");
  require(options.workspace.empty(), function, ": workspace has ", std::ssize(options.workspace),
          " bytes, a layer works in memory of its own");
  if (!options.lse) return;
  const Operand lse = operand(function, "lse", options.lse);
  check_output(lse);
  check_no_overlap(y, lse);
  check_no_overlap(lse, x);  // which is added again once lse is written
}

}  // namespace headlane::internal
