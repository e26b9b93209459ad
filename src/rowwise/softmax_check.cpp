#include "rowwise/softmax_check.hpp"

namespace headlane::internal {
namespace {

/// A mask or a bias.
void check_per_element(const Operand& given, const Operand& x, const Operand& y) {
  if (!given) return;
  given.require(given.rank == x.rank, " has rank ", given.rank, ", x has rank ", x.rank);
  check_operand(given);
  for (int axis = 0; axis < x.rank; ++axis)
    given.require(given.shape[axis] == x.shape[axis], " has ", given.shape[axis], " elements along axis ", axis,
                  ", x has ", x.shape[axis]);
  check_no_overlap(y, given);
}

/// Elements that are shared by a stride of 0 are checked once.
void check_values(const Operand& lengths, Index max) {
  const auto* data = static_cast<const Index*>(lengths.data);
  Index count = 1;
  for (int axis = 0; axis < lengths.rank; ++axis) count *= lengths.strides[axis] == 0 ? 1 : lengths.shape[axis];
  for (Index i = 0; i < count; ++i) {
    Index offset = 0, rest = i;
    for (int axis = lengths.rank - 1; axis >= 0; --axis) {
      if (lengths.strides[axis] == 0) continue;
      offset += rest % lengths.shape[axis] * lengths.strides[axis];
      rest /= lengths.shape[axis];
    }
    lengths.caller.require(data[offset] >= 0 && data[offset] <= max, "one of the lengths is ", data[offset], ", x has ",
                           max, " elements along the axis");
  }
}

void check_lengths(const Operand& lengths, const Operand& x, const Operand& y, int softmax_axis) {
  if (!lengths) return;
  lengths.require(lengths.rank == x.rank - 1, " has rank ", lengths.rank, ", x has rank ", x.rank,
                  ", without the axis ", x.rank - 1);
  check_operand(lengths);
  for (int axis = 0; axis < lengths.rank; ++axis) {
    const int of_x = axis < softmax_axis ? axis : axis + 1;
    lengths.require(lengths.shape[axis] == x.shape[of_x], " has ", lengths.shape[axis], " elements along axis ", axis,
                    ", x has ", x.shape[of_x], " along axis ", of_x);
  }
  check_no_overlap(y, lengths);
  if (!is_empty(lengths)) check_values(lengths, x.shape[softmax_axis]);
}

}  // namespace

void check_softmax(const Operand& x, const Operand& y, const SoftmaxOptions& options) {
  const Caller caller = x.caller;
  check_elementwise(x, y);
  caller.require(options.axis >= -x.rank && options.axis < x.rank, "axis is ", options.axis, ", x has shape ", x);
  const int axis = axis_of(options, x.rank);
  check_per_element(caller.operand("mask", options.mask), x, y);
  check_per_element(caller.operand("bias", options.bias), x, y);
  check_lengths(caller.operand("lengths", options.lengths), x, y, axis);
  caller.require(!options.causal || (x.rank >= 2 && axis == x.rank - 1),
                 "causal is for the last of two axes or more, axis is ", options.axis, ", x has shape ", x);
  check_threads(caller, options.num_threads);
}

}  // namespace headlane::internal
