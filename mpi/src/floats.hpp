// Memory that messages are received into and sent from.
#pragma once

#include <cstddef>
#include <new>
#include <utility>

namespace headlane::mpi::internal {

/// Where this memory comes from. Tests place it between guard pages, count it and let it fail.
struct FloatsSource {
  float* (*allocate)(std::size_t count) = [](std::size_t count) {
    return static_cast<float*>(::operator new(count * sizeof(float)));
  };
  void (*free)(float* data, std::size_t count) noexcept = [](float* data, std::size_t) noexcept {
    ::operator delete(data);
  };
  /// Whether KeptMemory may be larger than what a call needs.
  bool kept = true;
};
inline FloatsSource floats_source;

/// An array of floats, undefined at first.
class Floats {
 public:
  Floats() = default;
  explicit Floats(std::size_t count) : data_(floats_source.allocate(count)), size_(count) {}
  ~Floats() {
    if (data_ != nullptr) floats_source.free(data_, size_);
  }
  Floats(Floats&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Floats& operator=(Floats&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  /// It is never freed.
  void abandon() noexcept {
    data_ = nullptr;
    size_ = 0;
  }

  [[nodiscard]] float* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  float* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace headlane::mpi::internal
