// Lanes<Arch>: the virtual vector of 16 floats that all kernels are written on: one AVX-512
// register, two AVX2, four NEON, or sixteen plain floats. Kernels written on Lanes return the same
// bits on every instruction set.
#pragma once

#include "kernels/args/sizes.hpp"
#include "kernels/simd/registers.hpp"

namespace headlane::internal::kernels {
namespace {

/// A number as a type, for tile sizes known at compile time.
template <int Value>
struct Constant {
  static constexpr int value = Value;
};

/// Calls f(Constant<number>) with the smaller of n, at least Least, and Limit.
template <int Limit, int Least = 1, class F>
HEADLANE_INLINE void with_constant(Index n, const F& f) {
  if constexpr (Limit > Least) {
    if (n < Limit) return with_constant<Limit - 1, Least>(n, f);
  }
  f(Constant<Limit>{});
}

/// f(0), f(1), … f(N-1), unrolled. A step of a computation on N registers is one call: all
/// registers take it side by side before any takes the next.
template <int N, class F>
HEADLANE_INLINE void for_each_register(const F& f) {
#pragma GCC unroll 16
  for (int i = 0; i < N; ++i) f(i);
}

/// Makes an address opaque to the optimiser. Otherwise GCC keeps a pointer for each row of a tile,
/// twelve for a and twelve for c, most of them on the stack: 72 instead of 95 % of the FMA peak, as
/// soon as the code around the loop changes a little.
template <class T>
HEADLANE_INLINE void make_opaque(T& address) {
  asm("" : "+r"(address));
}

/// to[i] = from[i · step] for i < count (at most 16). Not inline: rare, and called in many places.
template <class T>
__attribute__((noinline)) void copy_strided(const T* from, Index step, Index count, T* to) {
  for (Index i = 0; i < lanes && i < count; ++i) to[i] = from[i * step];
}

/// Every operation works lane by lane. A mask is the result of comparing two registers.
template <class Arch>
struct Lanes {
  using R = Register<Arch>;
  using Float = typename R::Float;
  static constexpr int width = R::width;
  static constexpr int parts = static_cast<int>(lanes) / width;

  Float part[parts];

  /// f on each register; f may take registers of several operands.
  template <class F, class... Operands>
  static HEADLANE_INLINE Lanes map(F f, const Operands&... operands) {
    Lanes result;
#pragma GCC unroll 16
    for (int i = 0; i < parts; ++i) result.part[i] = f(operands.part[i]...);
    return result;
  }

  static HEADLANE_INLINE Lanes broadcast(float x) {
    Lanes result;
    const Float all(x);
#pragma GCC unroll 16
    for (int i = 0; i < parts; ++i) result.part[i] = all;
    return result;
  }
  static HEADLANE_INLINE Lanes zero() { return broadcast(0.0f); }

  static HEADLANE_INLINE Lanes load(const float* p) {
    Lanes result;
#pragma GCC unroll 16
    for (int i = 0; i < parts; ++i) result.part[i] = R::load(p + i * width);
    return result;
  }
  HEADLANE_INLINE void store(float* p) const {
#pragma GCC unroll 16
    for (int i = 0; i < parts; ++i) R::store(p + i * width, part[i]);
  }

  /// The first `count` (0 … 16) elements; the other lanes are `fill` and their memory is not
  /// touched.
  static HEADLANE_INLINE Lanes load(const float* p, Index count, float fill) {
    if constexpr (width == 1) return load_floats(p, count, fill);
    Lanes result;
#pragma GCC unroll 16
    for (int i = 0; i < parts; ++i) result.part[i] = R::load_some(p + i * width, count - i * width, fill);
    return result;
  }
  /// Stores the first `count` (0 … 16) lanes; no other memory is touched.
  HEADLANE_INLINE void store(float* p, Index count) const {
#pragma GCC unroll 16
    for (int i = 0; i < parts; ++i) R::store_some(p + i * width, part[i], count - i * width);
  }

  /// `count` (1 … 16) elements, `step` apart; the other lanes are 0 and their memory is not
  /// touched.
  static HEADLANE_INLINE Lanes gather(const float* p, Index step, Index count) {
    if (step == 1) return count >= lanes ? load(p) : load(p, count, 0.0f);
    alignas(64) float copy[lanes] = {};
    copy_strided(p, step, count, copy);
    return load(copy);
  }

  friend HEADLANE_INLINE Lanes operator+(const Lanes& a, const Lanes& b) {
    return map([](Float x, Float y) { return x + y; }, a, b);
  }
  friend HEADLANE_INLINE Lanes operator-(const Lanes& a, const Lanes& b) {
    return map([](Float x, Float y) { return x - y; }, a, b);
  }
  friend HEADLANE_INLINE Lanes operator*(const Lanes& a, const Lanes& b) {
    return map([](Float x, Float y) { return x * y; }, a, b);
  }
  friend HEADLANE_INLINE Lanes operator/(const Lanes& a, const Lanes& b) {
    return map([](Float x, Float y) { return R::divide(x, y); }, a, b);
  }
  /// a · b + c, rounded once.
  friend HEADLANE_INLINE Lanes fma(const Lanes& a, const Lanes& b, const Lanes& c) {
    return map([](Float x, Float y, Float z) { return R::fma(x, y, z); }, a, b, c);
  }
  /// a > b ? a : b. A NaN in a returns b, a NaN in b stays: max(bound, x) keeps a NaN in x.
  friend HEADLANE_INLINE Lanes max(const Lanes& a, const Lanes& b) {
    return map([](Float x, Float y) { return R::max(x, y); }, a, b);
  }
  /// Bit i: lane i of a is equal to that of b.
  friend HEADLANE_INLINE unsigned equal_bits(const Lanes& a, const Lanes& b) {
    unsigned bits = 0;
#pragma GCC unroll 16
    for (int i = 0; i < parts; ++i) bits |= R::equal_bits(a.part[i], b.part[i]) << (i * width);
    return bits;
  }
  /// a == b ? x : y.
  friend HEADLANE_INLINE Lanes select_equal(const Lanes& a, const Lanes& b, const Lanes& x, const Lanes& y) {
    return map([](Float p, Float q, Float r, Float s) { return R::select(p == q, r, s); }, a, b, x, y);
  }
  /// a < b ? x : y.
  friend HEADLANE_INLINE Lanes select_less(const Lanes& a, const Lanes& b, const Lanes& x, const Lanes& y) {
    return map([](Float p, Float q, Float r, Float s) { return R::select(p < q, r, s); }, a, b, x, y);
  }

  /// Selects this where the flag is true, `fill` elsewhere; reads `count` flags, `step` apart, and
  /// no others.
  HEADLANE_INLINE Lanes where(const bool* flags, Index step, Index count, const Lanes& fill) const {
    if (step == 1) return where(flags, count, fill);
    bool copy[lanes] = {};
    copy_strided(flags, step, count, copy);
    return where(copy, lanes, fill);
  }

  /// Lane i of this one if bit i of `bits` is set, otherwise of `fill`.
  HEADLANE_INLINE Lanes where(unsigned bits, const Lanes& fill) const {
    Lanes result;
#pragma GCC unroll 16
    for (int i = 0; i < parts; ++i) result.part[i] = R::select_bits(bits >> (i * width), part[i], fill.part[i]);
    return result;
  }

  /// The first `count` lanes of this one, the other lanes of `fill`.
  HEADLANE_INLINE Lanes first(Index count, const Lanes& fill) const {
    return select_less(positions(), broadcast(static_cast<float>(count)), *this, fill);
  }

  /// The first `count` lanes of `fill`, the other lanes of this one.
  HEADLANE_INLINE Lanes without_first(Index count, const Lanes& fill) const { return fill.first(count, *this); }

  /// The numbers first, first + 1 … first + 15.
  static HEADLANE_INLINE Lanes from(float first) { return positions() + broadcast(first); }

  /// Sum of the lanes by the fixed tree 16 → 8 → 4 → 2 → 1: lane i + lane i+8, then i + i+4, i +
  /// i+2, i + i+1.
  HEADLANE_INLINE float reduce_add() const {
    return fold([](Float x, Float y) { return x + y; });
  }
  /// Largest lane, by the same tree.
  HEADLANE_INLINE float reduce_max() const {
    return fold([](Float x, Float y) { return R::max(x, y); });
  }

 private:
  /// 16 conditions, in a loop. Not inline: that took 60 of 830 KB of the scalar kernels.
  static __attribute__((noinline)) Lanes load_floats(const float* p, Index count, float fill) {
    Lanes result;
    for (int i = 0; i < parts; ++i) result.part[i] = i < count ? p[i] : fill;
    return result;
  }
  static HEADLANE_INLINE Lanes positions() {
    constexpr float position[lanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return load(position);
  }
  HEADLANE_INLINE Lanes where(const bool* flags, Index count, const Lanes& fill) const {
    Lanes result;
#pragma GCC unroll 16
    for (int i = 0; i < parts; ++i)
      result.part[i] = R::select_flags(flags + i * width, count - i * width, part[i], fill.part[i]);
    return result;
  }
  template <class Op>
  HEADLANE_INLINE float fold(Op op) const {
    Float x[parts];
#pragma GCC unroll 16
    for (int i = 0; i < parts; ++i) x[i] = part[i];
#pragma GCC unroll 4
    for (int half = parts / 2; half > 0; half /= 2)
#pragma GCC unroll 8
      for (int i = 0; i < half; ++i) x[i] = op(x[i], x[i + half]);
    if constexpr (width > 8) x[0] = op(x[0], R::template rotated<8>(x[0]));
    if constexpr (width > 4) x[0] = op(x[0], R::template rotated<4>(x[0]));
    if constexpr (width > 2) x[0] = op(x[0], R::template rotated<2>(x[0]));
    if constexpr (width > 1) return op(x[0], R::template rotated<1>(x[0])).get(0);
    if constexpr (width == 1) return x[0];
  }
};

/// The first `count` elements, all 16 if there are more; the other lanes are `fill` and their
/// memory is not touched.
template <class Arch>
HEADLANE_INLINE Lanes<Arch> load_some(const float* p, Index count, float fill = 0.0f) {
  return count >= lanes ? Lanes<Arch>::load(p) : Lanes<Arch>::load(p, count, fill);
}
template <class Arch>
HEADLANE_INLINE void store_some(float* p, Index count, const Lanes<Arch>& x) {
  count >= lanes ? x.store(p) : x.store(p, count);
}

}  // namespace
}  // namespace headlane::internal::kernels
