#include "io/gguf_types.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace headlane::models::internal {
namespace {

// Blocks, as ggml lays them out; of bytes alone, so that they have no alignment.
template <class T>
struct Bytes {
  std::uint8_t bytes[sizeof(T)];

  [[nodiscard]] T value() const {
    T x;
    std::memcpy(&x, bytes, sizeof x);
    return x;
  }
};
using Half = Bytes<float16>;

template <class T>
float widened(const Bytes<T>& x) {
  return static_cast<float>(x.value());
}

struct BlockQ8 {
  Half d;
  std::int8_t q[32];
};
struct BlockQ4 {
  Half d;
  std::uint8_t q[16];  // elements i and i + 16
};
struct BlockQ4K {
  Half d, dmin;
  std::uint8_t scales[12];
  std::uint8_t q[4][32];  // elements i and i + 32 of 64
};
struct BlockQ6K {
  std::uint8_t low[2][64];   // the lower 4 bits of elements i and i + 64 of 128
  std::uint8_t high[2][32];  // the upper 2 bits of elements i, i + 32, i + 64 and i + 96 of 128
  std::int8_t scales[16];
  Half d;
};

/// Calls f(block, its number) for each block.
template <class Block, class F>
void for_each_block(std::span<const std::byte> blocks, const F& f) {
  static_assert(alignof(Block) == 1);
  const std::size_t count = blocks.size() / sizeof(Block);
  for (std::size_t i = 0; i < count; ++i) {
    Block block;
    std::memcpy(&block, blocks.data() + i * sizeof block, sizeof block);
    f(block, i);
  }
}

void copy_floats(std::span<const std::byte> blocks, float* out) { std::memcpy(out, blocks.data(), blocks.size()); }

template <class T>
void widen_all(std::span<const std::byte> blocks, float* out) {
  for_each_block<Bytes<T>>(blocks, [&](const Bytes<T>& x, std::size_t i) { out[i] = widened(x); });
}

void dequantise_q8(std::span<const std::byte> blocks, float* out) {
  for_each_block<BlockQ8>(blocks, [&](const BlockQ8& block, std::size_t b) {
    float* const to = out + 32 * b;
    const float d = widened(block.d);
    for (int i = 0; i < 32; ++i) to[i] = static_cast<float>(block.q[i]) * d;
  });
}

/// Element i of a block.
std::int8_t number_of(const BlockQ4& block, int i) {
  const unsigned nibble = i < 16 ? block.q[i] & 15u : block.q[i - 16] >> 4;
  return static_cast<std::int8_t>(static_cast<int>(nibble) - 8);
}

void dequantise_q4(std::span<const std::byte> blocks, float* out) {
  for_each_block<BlockQ4>(blocks, [&](const BlockQ4& block, std::size_t b) {
    float* const to = out + 32 * b;
    const float d = widened(block.d);
    for (int i = 0; i < 32; ++i) to[i] = d * static_cast<float>(number_of(block, i));
  });
}

void dequantise_q4k(std::span<const std::byte> blocks, float* out) {
  for_each_block<BlockQ4K>(blocks, [&](const BlockQ4K& block, std::size_t b) {
    float* to = out + 256 * b;
    const std::uint8_t* const s = block.scales;
    for (int j = 0; j < 8; ++j, to += 32) {  // 32 elements with a scale and a minimum of 6 bits
      const int i = j % 4;
      const int scale = j < 4 ? s[i] & 63 : (s[8 + i] & 15) | (s[i] >> 2 & 48);
      const int least = j < 4 ? s[4 + i] & 63 : s[8 + i] >> 4 | (s[4 + i] >> 2 & 48);
      const float d = widened(block.d) * static_cast<float>(scale), m = widened(block.dmin) * static_cast<float>(least);
      for (int l = 0; l < 32; ++l) {
        const int q = j % 2 == 0 ? block.q[j / 2][l] & 15 : block.q[j / 2][l] >> 4;
        to[l] = d * static_cast<float>(q) - m;
      }
    }
  });
}

void dequantise_q6k(std::span<const std::byte> blocks, float* out) {
  for_each_block<BlockQ6K>(blocks, [&](const BlockQ6K& block, std::size_t b) {
    float* const to = out + 256 * b;
    for (int i = 0; i < 256; ++i) {
      const int half = i / 128, part = i % 128 / 32, group = i / 16;
      const int low = block.low[half][i % 64] >> (part < 2 ? 0 : 4) & 15,
                high = block.high[half][i % 32] >> 2 * part & 3;
      const float d = widened(block.d) * static_cast<float>(block.scales[group]);
      to[i] = d * static_cast<float>((low | high << 4) - 32);
    }
  });
}

constexpr std::array<GgufType, 34> types{{
    {0, "F32", 1, 4, copy_floats, DType::float32},
    {1, "F16", 1, 2, widen_all<float16>, DType::float16},
    {2, "Q4_0", 32, 18, dequantise_q4, DType::int4_group32},
    {3, "Q4_1", 32, 20},
    {6, "Q5_0", 32, 22},
    {7, "Q5_1", 32, 24},
    {8, "Q8_0", 32, 34, dequantise_q8, DType::int8_group32},
    {9, "Q8_1", 32, 40},
    {10, "Q2_K", 256, 84},
    {11, "Q3_K", 256, 110},
    {12, "Q4_K", 256, 144, dequantise_q4k},
    {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210, dequantise_q6k},
    {15, "Q8_K", 256, 292},
    {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98},
    {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18},
    {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136},
    {24, "I8", 1, 1},
    {25, "I16", 1, 2},
    {26, "I32", 1, 4},
    {27, "I64", 1, 8},
    {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},
    {30, "BF16", 1, 2, widen_all<bfloat16>, DType::bfloat16},
    {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},
    {39, "MXFP4", 32, 17},
    {40, "NVFP4", 64, 36},
    {41, "Q1_0", 128, 18},
}};

}  // namespace

const GgufType* find_gguf_type(std::uint32_t number) {
  const auto* const found =
      std::find_if(types.begin(), types.end(), [&](const GgufType& type) { return type.number == number; });
  return found == types.end() ? nullptr : found;
}

void split_blocks(std::span<const std::byte> blocks, DType stored, std::int8_t* numbers, float16* scales) {
  if (stored == DType::int8_group32) {
    for_each_block<BlockQ8>(blocks, [&](const BlockQ8& block, std::size_t b) {
      scales[b] = block.d.value();
      std::copy_n(block.q, 32, numbers + 32 * b);
    });
  } else {
    for_each_block<BlockQ4>(blocks, [&](const BlockQ4& block, std::size_t b) {
      std::int8_t* const to = numbers + 32 * b;
      scales[b] = block.d.value();
      for (int i = 0; i < 32; ++i) to[i] = number_of(block, i);
    });
  }
}

}  // namespace headlane::models::internal
