// Memory for elements between operations.
#pragma once

#include <headlane/index.hpp>

#include <cstddef>
#include <memory>

namespace headlane::python {

/// The calling thread keeps up to 64 MiB.
class Between {
 public:
  template <class T>
  T* of(Index count) {
    constexpr std::size_t line = 64, most = std::size_t{64} << 20;
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T) + line;
    thread_local Memory kept;
    Memory& memory = bytes <= most ? kept : own_;
    if (memory.bytes < bytes) {
      memory = {};
      memory = {std::make_unique_for_overwrite<std::byte[]>(bytes), bytes};
    }
    void* begin = memory.data.get();
    std::size_t space = bytes;
    return static_cast<T*>(std::align(line, bytes - line, begin, space));
  }

 private:
  struct Memory {
    std::unique_ptr<std::byte[]> data;
    std::size_t bytes = 0;
  };
  Memory own_;
};

}  // namespace headlane::python
