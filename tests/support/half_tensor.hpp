// Tensors of bfloat16 and float16 in the layouts of Tensor (data.hpp).
#pragma once

#include "support/data.hpp"

#include <headlane/dtype.hpp>

#include <string>
#include <type_traits>

namespace headlane::test {

/// Its name in messages.
template <class T>
std::string name_of_half() {
  return std::is_same_v<T, bfloat16> ? "bfloat16" : "float16";
}

/// A number of 16 bits that no conversion of a number returns: a NaN.
inline constexpr std::uint16_t half_sentinel = 0xffa5u;

template <class T>
T half_of(std::uint16_t bits) {
  T result;
  result.bits = bits;
  return result;
}

/// Owns a strided array in a larger buffer of sentinels. Movable only: `view` points into it.
template <class T, int Rank>
class HalfTensor {
 public:
  using Shape = std::array<Index, static_cast<std::size_t>(Rank)>;

  explicit HalfTensor(const Shape& shape, const Layout& layout = {}) {
    constexpr Index margin = 64;
    view.shape = shape;
    view.strides = Tensor<Rank>(shape, layout).view.strides;
    const Reach reach = reach_of(shape, view.strides);
    const Index before = margin + layout.misalignment;
    storage_.assign(static_cast<std::size_t>(reach.high - reach.low + 1 + before + margin), half_of<T>(half_sentinel));
    view.data = storage_.data() + before - reach.low;
  }
  /// Each element rounded.
  template <class U>
  explicit HalfTensor(const View<U, Rank>& from, const Layout& layout = {}) : HalfTensor(from.shape, layout) {
    for_each_position(from.shape, [&](const auto& at) {
      view.data[offset_of(at, view.strides)] = T(from.data[offset_of(at, from.strides)]);
    });
  }
  HalfTensor(HalfTensor&&) noexcept = default;
  HalfTensor& operator=(HalfTensor&&) noexcept = default;
  HalfTensor(const HalfTensor&) = delete;
  HalfTensor& operator=(const HalfTensor&) = delete;
  ~HalfTensor() = default;

  /// The elements as float, dense.
  [[nodiscard]] Tensor<Rank> widened() const {
    Tensor<Rank> result(view.shape);
    for_each_position(view.shape, [&](const auto& at) {
      result.view.data[offset_of(at, result.view.strides)] = static_cast<float>(view.data[offset_of(at, view.strides)]);
    });
    return result;
  }

  /// Whether only elements of the view were written.
  [[nodiscard]] bool surroundings_untouched() const {
    std::vector<bool> own(storage_.size(), false);
    for_each(view, [&](const T& x) { own[static_cast<std::size_t>(&x - storage_.data())] = true; });
    for (std::size_t i = 0; i < storage_.size(); ++i)
      if (!own[i] && storage_[i].bits != half_sentinel) return false;
    return true;
  }

  View<T, Rank> view;

 private:
  std::vector<T> storage_;
};

template <class T, int Rank>
void copy_halves(const View<T, Rank>& from, const View<T, Rank>& to) {
  for_each_position(
      to.shape, [&](const auto& at) { to.data[offset_of(at, to.strides)] = from.data[offset_of(at, from.strides)]; });
}

/// A dense copy at an end of a buffer.
template <class T, int Rank>
View<T, Rank> placed(GuardedBuffer& buffer, const View<T, Rank>& from, Place where) {
  Index size = 1;
  for (const Index n : from.shape) size *= n;
  const Index odd = size % 2;
  auto* const first = reinterpret_cast<T*>(buffer.place(size / 2 + odd, 0, where));
  const View<T, Rank> to(where == Place::start ? first : first + odd, from.shape);
  copy_halves(from, to);
  return to;
}

/// Number of elements that are not the rounded ones; all NaNs are the same.
template <class T, class U, int Rank>
Index different_from_rounded(const View<T, Rank>& actual, const View<U, Rank>& expected) {
  Index count = 0;
  for_each_position(actual.shape, [&](const auto& at) {
    const auto x = static_cast<float>(actual.data[offset_of(at, actual.strides)]);
    const auto y = static_cast<float>(T(expected.data[offset_of(at, expected.strides)]));
    count += bits_of(x) != bits_of(y) ? 1 : 0;
  });
  return count;
}

}  // namespace headlane::test
