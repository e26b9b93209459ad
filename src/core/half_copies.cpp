// Float32 copies of tensors of 16 bits.
#include "core/check.hpp"
#include "core/convert.hpp"
#include "core/dispatch.hpp"
#include "core/parallel.hpp"
#include "core/round.hpp"
#include "core/view_rows.hpp"

namespace headlane::internal {
namespace {

/// The number of threads for a conversion.
template <class T>
int threads_for(const AnyView<T>& view, int asked) {
  return useful_threads(0, static_cast<double>(number_of_elements(view)), asked);
}

/// Elements of the copy of a tensor.
Index size_of(const AnyView<const std::uint16_t>& view) {
  if (is_empty(view)) return 0;  // its strides are not checked, and its sizes may be huge
  Index size = 1;
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(view.rank); ++axis)
    size *= view.strides[axis] == 0 && view.shape[axis] != 0 ? 1 : view.shape[axis];
  return round_up(size, kernels::lanes);
}

}  // namespace

AnyView<float> dense_like(const AnyView<const std::uint16_t>& like, float* memory) {
  AnyView<float> dense;
  dense.data = memory;
  dense.rank = like.rank;
  dense.shape = like.shape;
  if (is_empty(like)) return dense;
  dense.strides.fill(1);  // of axes of one element
  Index stride = 1;
  const Axes axes = axes_by_step(Caller("").operand("", like));
  for (std::size_t i = 0; i < axes.count; ++i) {
    const auto axis = static_cast<std::size_t>(axes.axis[i]);
    const bool is_shared = like.strides[axis] == 0;
    dense.strides[axis] = is_shared ? 0 : stride;
    stride *= is_shared ? 1 : dense.shape[axis];
  }
  return dense;
}

void HalfCopies::reserve(const AnyView<const std::uint16_t>& view) {
  constexpr Index too_many = Index{1} << 61;  // for any allocation, and their sum is an Index
  floats_ = std::min(floats_ + size_of(view), too_many);
}

void HalfCopies::allocate() { memory_ = scratch(purpose_, floats_); }

AnyView<float> HalfCopies::room(const AnyView<const std::uint16_t>& like) {
  const AnyView<float> copy = dense_like(like, memory_);
  memory_ += size_of(like);
  return copy;
}

AnyView<float> HalfCopies::add(const HalfInput& from) {
  const AnyView<float> copy = room(from);
  if (is_empty(from)) return copy;
  AnyView<float> to = copy;
  HalfInput once = from;
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(from.rank); ++axis)
    if (from.strides[axis] == 0) to.shape[axis] = once.shape[axis] = 1;
  convert_all(kernel_, once, to, threads_for(to, num_threads_));
  return copy;
}

void HalfCopies::round(const AnyView<const float>& from, const HalfOutput& to) const {
  if (!is_empty(to)) convert_all(kernel_, from, to, threads_for(from, num_threads_));
}

AnyView<float> wide_option(const HalfInput& option, int num_threads) {
  HalfCopies copies(active(), num_threads, Purpose::option);
  copies.reserve(option);
  copies.allocate();
  return copies.add(option);
}

}  // namespace headlane::internal
