// Tensors of bfloat16 and float16 inside the library, and their conversions.
#pragma once

#include "core/scratch.hpp"
#include "kernels/table.hpp"

#include <headlane/dtype.hpp>
#include <headlane/floating_view.hpp>
#include <headlane/view.hpp>

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace headlane::internal {

/// The DType of T, which is bfloat16 or float16.
template <class T>
inline constexpr DType type_of = std::is_same_v<std::remove_const_t<T>, bfloat16> ? DType::bfloat16 : DType::float16;

/// The bits of a tensor of such a type, const for an input.
template <class T>
using BitsOf = std::conditional_t<std::is_const_v<T>, const std::uint16_t, std::uint16_t>;
template <class T, int Rank>
View<BitsOf<T>, Rank> bits_of(const View<T, Rank>& view) {
  static_assert(sizeof(T) == sizeof(std::uint16_t));
  return {reinterpret_cast<BitsOf<T>*>(view.data), view.shape, view.strides};
}

/// A tensor of bfloat16 or float16: its bits, and which of the two it is. One type for both, so
/// that functions are compiled once. Bits is std::uint16_t, const for an input.
template <class Bits>
struct HalfView : AnyView<Bits> {
  DType type;

  HalfView(const AnyView<Bits>& view, DType type_) : AnyView<Bits>(view), type(type_) {}
  template <class T>
    requires(std::is_const_v<T> == std::is_const_v<Bits> && !std::is_same_v<T, Bits>)
  explicit HalfView(const AnyView<T>& view) : type(type_of<T>) {
    static_assert(sizeof(T) == sizeof(Bits));
    this->data = reinterpret_cast<Bits*>(view.data);
    this->rank = view.rank;
    this->shape = view.shape;
    this->strides = view.strides;
  }
};
using HalfInput = HalfView<const std::uint16_t>;
using HalfOutput = HalfView<std::uint16_t>;

/// The same view of const elements.
template <class T>
AnyView<const T> as_input(const AnyView<T>& view) {
  AnyView<const T> input;
  input.data = view.data;
  input.rank = view.rank;
  input.shape = view.shape;
  input.strides = view.strides;
  return input;
}

/// The view, whose rank is known to be Rank.
template <int Rank, class T>
View<T, Rank> as_view(const AnyView<T>& view) {
  View<T, Rank> result;
  result.data = view.data;
  std::copy_n(view.shape.begin(), Rank, result.shape.begin());
  std::copy_n(view.strides.begin(), Rank, result.strides.begin());
  return result;
}

/// to = from on some threads. The views have the same shape, are not empty, and are checked.
void convert_all(const kernels::KernelTable& kernel, const HalfInput& from, const AnyView<float>& to, int threads);
void convert_all(const kernels::KernelTable& kernel, const AnyView<const float>& from, const HalfOutput& to,
                 int threads);

/// A dense view of some memory for the same elements, whose axes nest as those of `like`. Axes of
/// stride 0 share their elements there, too.
AnyView<float> dense_like(const AnyView<const std::uint16_t>& like, float* memory);

/// Float32 copies of whole tensors, one behind the other in scratch memory, for functions that read
/// an input more than once.
class HalfCopies {
 public:
  /// `num_threads`: as an option has it.
  HalfCopies(const kernels::KernelTable& kernel, int num_threads, Purpose purpose = Purpose::half)
      : kernel_(kernel), num_threads_(num_threads), purpose_(purpose) {}

  /// Counts a tensor that add() or room() will be called with.
  void reserve(const AnyView<const std::uint16_t>& view);
  /// Called once, after the last reserve(). Throws std::bad_alloc.
  void allocate();
  /// The copy of a tensor; it may be empty.
  AnyView<float> add(const HalfInput& from);
  /// Its memory, not filled.
  AnyView<float> room(const AnyView<const std::uint16_t>& like);
  /// Rounds a copy.
  void round(const AnyView<const float>& from, const HalfOutput& to) const;

 private:
  const kernels::KernelTable& kernel_;
  int num_threads_;
  Purpose purpose_;
  Index floats_ = 0;
  float* memory_ = nullptr;
};

/// Whether an option, a FloatingView or an AnyFloatingView, is given in 16 bits.
template <class Option>
bool is_half(const Option& option) {
  return option && option.type != DType::float32;
}
template <class Option>
HalfInput half_input(const Option& option) {
  return {AnyView<const std::uint16_t>(option.template of<std::uint16_t>()), option.type};
}

/// A float32 copy of an option of 16 bits, in scratch memory: one option of a call at a time.
AnyView<float> wide_option(const HalfInput& option, int num_threads);

/// The options of a checked call, with such a copy in place of this member.
template <class Options, int Rank>
Options with_wide(const Options& options, FloatingView<Rank> Options::* member) {
  Options wide = options;
  wide.*member = as_view<Rank>(wide_option(half_input(options.*member), options.num_threads));
  return wide;
}
template <class Options>
Options with_wide(const Options& options, AnyFloatingView Options::* member) {
  Options wide = options;
  wide.*member = wide_option(half_input(options.*member), options.num_threads);
  return wide;
}

}  // namespace headlane::internal
