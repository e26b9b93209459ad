#include "core/float_copy.hpp"

#include <headlane/convert.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <new>

namespace headlane::python {
namespace {

using AxisList = std::array<std::size_t, static_cast<std::size_t>(max_rank)>;

Index step(const Memory& array, std::size_t axis) {
  const Index stride = array.strides[axis];
  return stride < 0 ? -stride : stride;
}

/// The axes as they are nested in memory, the innermost first.
AxisList axes_by_step(const Memory& array) {
  AxisList axes{};
  std::size_t count = 0;
  for (auto axis = static_cast<std::size_t>(array.rank); axis-- > 0;) {
    std::size_t at = count++;
    for (; at > 0 && step(array, axes[at - 1]) > step(array, axis); --at) axes[at] = axes[at - 1];
    axes[at] = axis;
  }
  return axes;
}

/// Strides of a dense array with axes of this order; returns the number of elements.
std::size_t set_dense_strides(AnyView<float>& copy, const AxisList& axes) {
  constexpr Index limit = std::numeric_limits<Index>::max() / static_cast<Index>(sizeof(float));
  Index count = 1;
  bool fits = true;
  for (std::size_t i = 0; i < static_cast<std::size_t>(copy.rank); ++i) {
    copy.strides[axes[i]] = count;
    if (copy.shape[axes[i]] == 0) return 0;
    fits = fits && !__builtin_mul_overflow(count, copy.shape[axes[i]], &count);
  }
  if (!fits || count > limit) throw std::bad_array_new_length();
  return static_cast<std::size_t>(count);
}

/// The same elements, of type T.
template <class T, class U>
AnyView<T> typed(const AnyView<U>& array) {
  AnyView<T> view;
  view.data = static_cast<T*>(array.data);
  view.rank = array.rank;
  view.shape = array.shape;
  view.strides = array.strides;
  return view;
}

}  // namespace

FloatCopy::FloatCopy(DType type, const Memory& array, bool is_read, bool is_written)
    : type_(type), is_read_(is_read), is_written_(is_written), array_(array) {
  array_.rank = std::max(1, array.rank);
  if (array.rank == 0) array_.shape[0] = 1;
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(array_.rank); ++axis)
    if (array_.strides[axis] == 0) array_.shape[axis] = std::min<Index>(array_.shape[axis], 1);
  copy_.rank = array_.rank;
  copy_.shape = array_.shape;
  const std::size_t count = set_dense_strides(copy_, axes_by_step(array_));
  is_read_ = is_read_ && count > 0;
  is_written_ = is_written_ && count > 0;
  memory_ = std::make_unique_for_overwrite<float[]>(count);
  copy_.data = memory_.get();
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(array_.rank); ++axis)
    if (array_.strides[axis] == 0) copy_.strides[axis] = 0;
}

void FloatCopy::widen(int threads) const {
  if (!is_read_) return;
  if (type_ == DType::bfloat16) convert(typed<const bfloat16>(array_), copy_, {threads});
  else convert(typed<const float16>(array_), copy_, {threads});
}

void FloatCopy::round(int threads) const {
  if (!is_written_) return;
  if (type_ == DType::bfloat16) convert(typed<const float>(copy_), typed<bfloat16>(array_), {threads});
  else convert(typed<const float>(copy_), typed<float16>(array_), {threads});
}

}  // namespace headlane::python
