// Blocks of GGUF's types, and a naive reading of them.
#pragma once

#include "gguf_files.hpp"
#include "support/data.hpp"

#include <headlane/dtype.hpp>

#include <bit>
#include <cstring>
#include <string>
#include <vector>

namespace headlane::test {

struct GgufType {
  std::uint32_t number;
  const char* name;
  Index elements, bytes;  // of a block
};

inline constexpr GgufType gguf_types[] = {{gguf_f32, "F32", 1, 4},      {gguf_f16, "F16", 1, 2},
                                          {gguf_bf16, "BF16", 1, 2},    {gguf_q8_0, "Q8_0", 32, 34},
                                          {gguf_q4_0, "Q4_0", 32, 18},  {gguf_q4_k, "Q4_K", 256, 144},
                                          {gguf_q6_k, "Q6_K", 256, 210}};

inline std::string random_bytes(Random& random, Index count) {
  std::string bytes;
  for (Index i = 0; i < count; ++i) bytes += static_cast<char>(random.next() & 0xffu);
  return bytes;
}

/// A scale that is finite.
inline void put_scale(Random& random, std::string& bytes, std::size_t at) {
  const auto scale = static_cast<std::uint16_t>(random.next() & 0xb3ffu);  // below 0.25
  std::memcpy(bytes.data() + at, &scale, sizeof scale);
}

inline unsigned byte_at(const std::string& bytes, Index i) {
  return static_cast<unsigned char>(bytes[static_cast<std::size_t>(i)]);
}

/// Blocks of any bytes, but that scales are finite, and numbers of Q8_0 no -128.
inline std::string random_blocks(const GgufType& type, Random& random, Index count) {
  std::string all;
  for (Index b = 0; b < count; ++b) {
    std::string block = random_bytes(random, type.bytes);
    if (type.elements == 1) {
      const float x = random.normal();
      const float16 half(x);
      const bfloat16 bfloat(x);
      if (type.number == gguf_f32) block = bytes_of_one(x);
      else block = type.number == gguf_f16 ? bytes_of_one(half) : bytes_of_one(bfloat);
    } else {
      put_scale(random, block, type.number == gguf_q6_k ? 208 : 0);
    }
    if (type.number == gguf_q4_k) put_scale(random, block, 2);
    for (std::size_t i = 2; i < block.size() && type.number == gguf_q8_0; ++i)
      if (byte_at(block, static_cast<Index>(i)) == 128) block[i] = 127;
    all += block;
  }
  return all;
}

inline float half_at(const std::string& bytes, Index i) {
  float16 x;
  std::memcpy(&x, bytes.data() + i, sizeof x);
  return static_cast<float>(x);
}

/// Element i of a block, bit field by bit field.
inline float element(const GgufType& type, const std::string& block, Index i) {
  const auto signed_at = [&](Index at) { return static_cast<float>(static_cast<signed char>(byte_at(block, at))); };
  switch (type.number) {
    case gguf_f32: {
      float x = 0;
      std::memcpy(&x, block.data(), sizeof x);
      return x;
    }
    case gguf_f16:
      return half_at(block, 0);
    case gguf_bf16:
      return std::bit_cast<float>(byte_at(block, 0) << 16 | byte_at(block, 1) << 24);
    case gguf_q8_0:
      return signed_at(2 + i) * half_at(block, 0);
    case gguf_q4_0:
      return static_cast<float>(static_cast<int>(byte_at(block, 2 + i % 16) >> (i < 16 ? 0 : 4) & 15u) - 8) *
             half_at(block, 0);
    case gguf_q4_k: {
      const Index group = i / 32, at = group % 4;
      const unsigned high = byte_at(block, 12 + at);
      const unsigned scale =
          group < 4 ? byte_at(block, 4 + at) & 63u : (high & 15u) | (byte_at(block, 4 + at) >> 6) << 4;
      const unsigned least = group < 4 ? byte_at(block, 8 + at) & 63u : high >> 4 | (byte_at(block, 8 + at) >> 6) << 4;
      const unsigned q = byte_at(block, 16 + i / 64 * 32 + i % 32) >> (i % 64 < 32 ? 0 : 4) & 15u;
      const float d = half_at(block, 0) * static_cast<float>(scale), m = half_at(block, 2) * static_cast<float>(least);
      const float product = d * static_cast<float>(q);
      return product - m;
    }
    default: {
      const Index low_at = i / 128 * 64 + i % 64, high_at = 128 + i / 128 * 32 + i % 32;
      const unsigned low = byte_at(block, low_at) >> (i % 128 < 64 ? 0 : 4) & 15u;
      const unsigned high = byte_at(block, high_at) >> (2 * (i % 128 / 32)) & 3u;
      const float d = half_at(block, 208) * signed_at(192 + i / 16);
      return d * static_cast<float>(static_cast<int>(low + 16 * high) - 32);
    }
  }
}

/// The elements of blocks.
inline std::vector<float> elements_of(const GgufType& type, const std::string& blocks) {
  std::vector<float> all;
  for (std::size_t at = 0; at < blocks.size(); at += static_cast<std::size_t>(type.bytes))
    for (Index i = 0; i < type.elements; ++i)
      all.push_back(element(type, blocks.substr(at, static_cast<std::size_t>(type.bytes)), i));
  return all;
}

inline Index different(const float* x, const std::vector<float>& y) {
  Index count = 0;
  for (std::size_t i = 0; i < y.size(); ++i) count += bits_of(x[i]) != bits_of(y[i]) ? 1 : 0;
  return count;
}

}  // namespace headlane::test
