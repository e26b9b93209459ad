// Conversions of contiguous numbers between float and the types of 16 bits.
#pragma once

#include "kernels/simd/half.hpp"

#include <headlane/index.hpp>

#include <type_traits>

namespace headlane::internal::kernels {
namespace {

/// The bits of a number.
template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>;

/// to[i] = from[i].
template <class Arch, class From, class To>
HEADLANE_INLINE void convert_each(const From* from, To* to, Index n) {
  constexpr int width = Register<Arch>::width;
  Index i = 0;
  for (; i + width <= n; i += width) convert_register<Arch>(from + i, to + i);
  if constexpr (width > 1) {
    if (i == n) return;
    alignas(64) BitsOf<From> in[width] = {};
    alignas(64) BitsOf<To> out[width];
    const Index rest = n - i;
    for (Index j = 0; j < rest; ++j) in[j] = __builtin_bit_cast(BitsOf<From>, from[i + j]);
    convert_register<Arch>(reinterpret_cast<const From*>(in), reinterpret_cast<To*>(out));
    for (Index j = 0; j < rest; ++j) to[i + j] = __builtin_bit_cast(To, out[j]);
  }
}

template <class Arch>
void widen(const void* from, DType type, float* to, Index n) noexcept {
  if (type == DType::bfloat16) convert_each<Arch>(static_cast<const bfloat16*>(from), to, n);
  else convert_each<Arch>(static_cast<const float16*>(from), to, n);
}

template <class Arch>
void round(const float* from, void* to, DType type, Index n) noexcept {
  if (type == DType::bfloat16) convert_each<Arch>(from, static_cast<bfloat16*>(to), n);
  else convert_each<Arch>(from, static_cast<float16*>(to), n);
}

}  // namespace
}  // namespace headlane::internal::kernels
