#include "layers/state_dict_reader.hpp"

#include "core/check.hpp"
#include "gemm/stored.hpp"

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace headlane::internal {
namespace {

/// The numbers of a matrix of elements without scales, and those of some columns packed again.
template <class T>
PackedMatrix repacked(const PackedMatrix& matrix, Index begin, Index end) {
  std::vector<T> all(static_cast<std::size_t>(matrix.rows() * matrix.columns()));
  const View<T, 2> numbers(all.data(), {matrix.rows(), matrix.columns()});
  matrix.unpack(numbers);
  const View<const T, 2> some = View<const T, 2>(numbers).slice(1, begin, end);
  if constexpr (std::is_same_v<T, float>) return PackedMatrix(some);
  else return PackedMatrix::from_numbers(some);
}

PackedMatrix repacked_integers(const PackedMatrix& matrix, Index begin, Index end) {
  const Index rows = matrix.rows(), columns = matrix.columns();
  const Index groups = has_scales(matrix.type()) ? 1 : ceil_div(rows, group_rows);
  std::vector<std::int8_t> all(static_cast<std::size_t>(rows * columns));
  std::vector<float> all_scales(static_cast<std::size_t>(groups * columns));
  const View<std::int8_t, 2> numbers(all.data(), {rows, columns});
  const View<float, 2> scales(all_scales.data(), {groups, columns});
  matrix.unpack(numbers, scales);
  const View<const std::int8_t, 2> some = View<const std::int8_t, 2>(numbers).slice(1, begin, end);
  if (has_scales(matrix.type()))
    return PackedMatrix::from_numbers(some, View<const float, 2>(scales).select(0, 0).slice(0, begin, end));
  const std::vector<float16> halves(all_scales.begin(), all_scales.end());  // exact
  const View<const float16, 2> of_groups(halves.data(), {groups, columns});
  return PackedMatrix::from_numbers(some, of_groups.slice(1, begin, end), matrix.type());
}

}  // namespace

// Panels are copied; columns that do not begin with a panel are packed anew, number by number.
PackedMatrix columns_of(const PackedMatrix& matrix, Index begin, Index end) {
  if (begin % kernels::panel_columns == 0 || begin == end) {
    const PackedMatrix::Columns some[] = {{&matrix, begin == end ? 0 : begin, begin == end ? 0 : end}};
    return PackedMatrix::joined(some);
  }
  switch (matrix.type()) {
    case DType::float32:
      return repacked<float>(matrix, begin, end);
    case DType::bfloat16:
      return repacked<bfloat16>(matrix, begin, end);
    case DType::float16:
      return repacked<float16>(matrix, begin, end);
    default:
      return repacked_integers(matrix, begin, end);
  }
}

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

const Index* StateDictReader::rows_of_team(std::string_view name) const {
  const auto found = state_.shares.find(this->name(name));
  return found == state_.shares.end() ? nullptr : &found->second;
}

void StateDictReader::require_share(std::string_view name, Index given, Index wanted) const {
  require(given == wanted, layer_, ": ", this->name(name), " has ", given, " rows, the share of this rank has ",
          wanted);
}

View<const float, 2> StateDictReader::own_rows(std::string_view name, Index rows, Index columns, Team* team,
                                               Shares& shares) const {
  const Index* const of_team = rows_of_team(name);
  const View<const float, 2> given = matrix(name, of_team != nullptr ? any_size : rows, columns);
  if (of_team == nullptr) {
    shares = Shares(team, given.shape[0], columns_of_share);
    return given.slice(0, shares.begin(), shares.end());
  }
  require(rows == any_size || rows == *of_team, layer_, ": ", this->name(name), " has ", *of_team,
          " rows on all ranks together, it must have ", rows);
  shares = Shares(team, *of_team, columns_of_share);
  require_share(name, given.shape[0], shares.own());
  return given;
}

OwnWeight StateDictReader::weight(std::string_view name, Index rows, Index columns, DType type, Team* team) const {
  if (const PackedMatrix* const given = packed(name, rows, columns)) {
    Shares shares(team, given->columns(), columns_of_share);
    return {columns_of(*given, shares.begin(), shares.end()), shares};
  }
  OwnWeight result;
  const View<const float, 2> own = own_rows(name, rows, columns, team, result.shares);
  result.matrix = PackedMatrix(own.transposed(), {.type = type});
  return result;
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

Linear StateDictReader::linear(const std::string& name, Index out, Index in, const WeightOptions& options) const {
  const std::string weight_name = name + ".weight";
  StateDict tensors;
  Index rows = 0;
  if (const PackedMatrix* const given = packed(weight_name, out, in)) {
    tensors.packed["weight"] = given;
    rows = given->columns();
  } else {
    const Index* const of_team = rows_of_team(weight_name);
    const View<const float, 2> weight = matrix(weight_name, of_team != nullptr ? any_size : out, in);
    tensors["weight"] = weight;
    rows = weight.shape[0];
    if (of_team != nullptr) {
      require(out == any_size || out == *of_team, layer_, ": ", this->name(weight_name), " has ", *of_team,
              " rows on all ranks together, it must have ", out);
      tensors.shares["weight"] = rows = *of_team;
    }
  }
  if (has(name + ".bias")) tensors["bias"] = tensor<1>(name + ".bias", {rows});
  return Linear(tensors, {}, options.weights, options.activations, options.team);
}

}  // namespace headlane::internal
