// Buffers for the benchmarks: aligned, and filled on construction, so that the first touch of a
// page is never timed.
#pragma once

#include <headlane/view.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>

namespace bench {

class Buffer {
 public:
  /// `size` values in [-scale, scale), a function of position and `seed` only: the same on every
  /// machine.
  explicit Buffer(headlane::Index size, std::uint32_t seed = 0, float scale = 1.0f)
      : size_(static_cast<std::size_t>(size)),
        data_(static_cast<float*>(::operator new[](size_ * sizeof(float), line))) {
    std::uint32_t state = seed * 2654435761u + 12345u;
    for (std::size_t i = 0; i < size_; ++i) {
      state = state * 1664525u + 1013904223u;  // Numerical Recipes; the upper 24 bits are good enough here
      data_[i] = scale * (static_cast<float>(state >> 8) * 0x1p-23f - 1.0f);
    }
  }

  [[nodiscard]] float* data() const { return data_.get(); }
  [[nodiscard]] std::size_t bytes() const { return size_ * sizeof(float); }
  [[nodiscard]] std::span<float> values() const { return {data_.get(), size_}; }

 private:
  static constexpr std::align_val_t line{64};
  struct Free {
    void operator()(float* p) const { ::operator delete[](p, line); }
  };
  std::size_t size_;
  std::unique_ptr<float[], Free> data_;
};

}  // namespace bench
