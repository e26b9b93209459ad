// Scratch memory: one growing buffer per thread and purpose, kept between calls, so that a call allocates nothing once warm.
#pragma once

#include <headlane/index.hpp>

#include <cstdlib>
#include <memory>
#include <new>

namespace headlane {

/// Buffers that are in use at the same time in one thread have different purposes.
enum class Purpose {
  rows,
  panels,
  block,
  factor,
  shared,
  frequencies,
  wide,
  heads,
  memory,
  sum,
  second_sum,
  normed,
  count
};

/// At least `floats` floats, aligned to a page, not initialised; valid until the same thread asks for the same purpose
/// again. Throws std::bad_alloc.
inline float* scratch(Purpose purpose, Index floats) {
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  struct Buffer {
    std::unique_ptr<float, Free> data;
    Index size = 0;
  };
  thread_local Buffer buffers[static_cast<int>(Purpose::count)];
  Buffer& buffer = buffers[static_cast<int>(purpose)];
  if (buffer.size < floats) {
    constexpr Index page = 1024;  // in floats
    const Index size = (floats + page - 1) / page * page;
    buffer.data.reset();
    buffer.size = 0;
    buffer.data.reset(static_cast<float*>(std::aligned_alloc(4096, static_cast<std::size_t>(size) * sizeof(float))));
    if (!buffer.data) throw std::bad_alloc();
    buffer.size = size;
  }
  return buffer.data.get();
}

}  // namespace headlane
