#include "io/convert.hpp"

#include <headlane/dtype.hpp>

#include <cstring>

namespace headlane::models::internal {
namespace {

template <class T>
void convert(std::span<const std::byte> in, float* out) {
  const std::byte* const from = in.data();
  const std::size_t n = in.size() / sizeof(T);
  for (std::size_t i = 0; i < n; ++i) {
    T x;
    std::memcpy(&x, from + sizeof x * i, sizeof x);
    out[i] = static_cast<float>(x);
  }
}

}  // namespace

void convert_float16(std::span<const std::byte> in, float* out) { convert<float16>(in, out); }

void convert_bfloat16(std::span<const std::byte> in, float* out) { convert<bfloat16>(in, out); }

}  // namespace headlane::models::internal
