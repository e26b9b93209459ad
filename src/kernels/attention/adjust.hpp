// Adjusts scores between q·kᵀ and their exponentials: softcap, ALiBi, biases, masks.
#pragma once

#include "kernels/args/attention.hpp"
#include "kernels/gemm/tile.hpp"
#include "kernels/simd/activation.hpp"

namespace headlane::internal::kernels {
namespace {

/// Whether every key between key_begin and key_end of a row is visible.
HEADLANE_INLINE bool is_unmasked(const AttentionBlock& block) {
  return block.mask.data == nullptr && block.bits.data == nullptr && block.bias.data == nullptr &&
         block.relative.data == nullptr;
}

/// Whether scores are adjusted before they are compared, softcap aside.
HEADLANE_INLINE bool adjusts(const AttentionBlock& block) { return !is_unmasked(block) || block.slopes != nullptr; }

/// Whether they can be adjusted while they are in registers: mask and bias can be loaded 16 at a
/// time, and tanh is not needed, whose code would be repeated for every register of every tile.
HEADLANE_INLINE bool adjusts_in_registers(const AttentionBlock& block) {
  return (block.mask.data == nullptr || block.mask.key_step == 1) &&
         (block.bias.data == nullptr || block.bias.key_step == 1) && block.softcap == 0.0f;
}

/// Replaces n scores of a row by softcap · tanh(score / softcap), and the rest of the last 16.
template <class Arch>
__attribute__((noinline)) void cap_scores(float softcap, float* scores, Index n) {
  using V = Lanes<Arch>;
  // The reciprocal of the smallest caps is infinite, and infinity times 0 is NaN.
  const float reciprocal = 1.0f / softcap;
  const V factor = V::broadcast(reciprocal < __FLT_MAX__ ? reciprocal : __FLT_MAX__), cap = V::broadcast(softcap);
  for_each_group<Arch>(n, [&](Index i, auto vectors, Index) {
    V x[vectors.value];
#pragma GCC unroll 4
    for (int j = 0; j < vectors.value; ++j) x[j] = V::load(scores + i + j * lanes) * factor;
    apply<Tanh>(x);
#pragma GCC unroll 4
    for (int j = 0; j < vectors.value; ++j) (x[j] * cap).store(scores + i + j * lanes);
  });
}

/// Adds slope · distance to 16 scores of a row, from key `key` on.
template <class Arch>
HEADLANE_INLINE Lanes<Arch> sloped(const AttentionBlock& block, Index row, Index key, const Lanes<Arch>& score) {
  using V = Lanes<Arch>;
  const Index distance = key + block.distance - row * block.row_distance;
  return fma(V::broadcast(block.slopes[row]), V::from(static_cast<float>(distance)), score);
}

/// Adds a bias, of which -inf masks the key.
template <class Arch>
HEADLANE_INLINE Lanes<Arch> biased(const Lanes<Arch>& score, const Lanes<Arch>& bias) {
  const Lanes<Arch> minus_inf = Lanes<Arch>::broadcast(-__builtin_inff());
  return select_equal(bias, minus_inf, minus_inf, score + bias);
}

/// The flags of 16 keys; only those of the first `count` are read.
HEADLANE_INLINE unsigned flags_of(const PerScore<unsigned char>& bits, Index row, Index key, Index count) {
  const unsigned char* flags = bits.data + row * bits.row_step + key / 8 * bits.key_step;
  return static_cast<unsigned>(flags[0] | (count > 8 ? flags[bits.key_step] << 8 : 0));
}

/// Adds everything that follows the softcap to 16 scores of a row, from key `key` on; masked keys
/// become -inf. Nothing is read beyond `count` keys (at least 1).
template <class Arch>
__attribute__((noinline)) Lanes<Arch> adjusted(const AttentionBlock& block, Index row, Index key, Lanes<Arch> score,
                                               Index count) {
  using V = Lanes<Arch>;
  const V minus_inf = V::broadcast(-__builtin_inff());
  if (block.slopes != nullptr) score = sloped<Arch>(block, row, key, score);
  const auto add = [&](const PerScore<float>& bias) {
    if (bias.data == nullptr) return;
    score = biased<Arch>(score, V::gather(bias.data + row * bias.row_step + key * bias.key_step, bias.key_step, count));
  };
  add(block.relative);
  add(block.bias);
  if (block.bits.data != nullptr) score = score.where(flags_of(block.bits, row, key, count), minus_inf);
  if (const auto& mask = block.mask; mask.data != nullptr)
    score = score.where(mask.data + row * mask.row_step + key * mask.key_step, mask.key_step, count, minus_inf);
  return score;
}

/// The same for a tile in registers, option by option, so that each is tested once for the tile.
template <class Arch, int Rows, int Vectors>
HEADLANE_INLINE void adjust_tile(const AttentionBlock& block, Index row, Index key,
                                 Accumulators<Arch, Rows, Vectors>& acc) {
  using V = Lanes<Arch>;
  const V minus_inf = V::broadcast(-__builtin_inff());
  const auto each = [&](const auto& f) HEADLANE_INLINE_LAMBDA {
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (int j = 0; j < Vectors; ++j) acc[i][j] = f(acc[i][j], i, j * lanes);
  };
  if (block.slopes != nullptr)
    each([&](const V& x, Index i, Index j) HEADLANE_INLINE_LAMBDA { return sloped<Arch>(block, row + i, key + j, x); });
  const auto add = [&](const PerScore<float>& bias) HEADLANE_INLINE_LAMBDA {
    if (bias.data == nullptr) return;
    const float* from = bias.data + row * bias.row_step + key;
    const Index step = bias.row_step;
    each([&](const V& x, Index i, Index j)
             HEADLANE_INLINE_LAMBDA { return biased<Arch>(x, V::load(from + i * step + j)); });
  };
  add(block.relative);
  add(block.bias);
  if (block.bits.data != nullptr)
    each([&](const V& x, Index i, Index j)
             HEADLANE_INLINE_LAMBDA { return x.where(flags_of(block.bits, row + i, key + j, lanes), minus_inf); });
  if (block.mask.data != nullptr) {
    const bool* from = block.mask.data + row * block.mask.row_step + key;
    const Index step = block.mask.row_step;
    each([&](const V& x, Index i, Index j)
             HEADLANE_INLINE_LAMBDA { return x.where(from + i * step + j, 1, lanes, minus_inf); });
  }
}

/// Prefetches the bias and mask of a tile, which then arrive while its products are computed.
template <int Rows, int Vectors>
HEADLANE_INLINE void prefetch_adjustments(const AttentionBlock& block, Index row, Index key) {
  const auto& bias = block.bias;
  const auto& mask = block.mask;
  const int bias_rows = bias.data == nullptr ? 0 : bias.row_step == 0 ? 1 : Rows;
  const int mask_rows = mask.data == nullptr ? 0 : mask.row_step == 0 ? 1 : Rows;
  for (int i = 0; i < bias_rows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j) __builtin_prefetch(bias.data + (row + i) * bias.row_step + key + j * lanes);
  for (int i = 0; i < mask_rows; ++i) __builtin_prefetch(mask.data + (row + i) * mask.row_step + key);
}

}  // namespace
}  // namespace headlane::internal::kernels
