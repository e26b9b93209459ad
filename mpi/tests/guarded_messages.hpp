// The memory of messages, in tests: each buffer is exactly as large as needed and ends where a page
// begins that nobody may touch. Included by a program, it is used by all calls of headlane::mpi.
#pragma once

#include "floats.hpp"

#include <headlane/index.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include <sys/mman.h>
#include <unistd.h>

namespace headlane::test {

/// Writes before the beginning of a buffer, found when it is freed.
inline std::atomic<long> writes_before_messages{0};
/// Of this thread.
inline thread_local std::size_t message_bytes = 0, most_message_bytes = 0;
/// So many more allocations of this thread succeed, then all fail; below 0: none fails.
inline thread_local long messages_until_failure = -1;

class MessagePages {
 public:
  static float* allocate(std::size_t count) {
    if (messages_until_failure == 0) throw std::bad_alloc();
    if (messages_until_failure > 0) --messages_until_failure;
    const MessagePages pages(count);
    void* mapped = mmap(nullptr, pages.size_ + 2 * page(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    auto* const first = static_cast<unsigned char*>(mapped) + page();
    if (pages.size_ > 0 && mprotect(first, pages.size_, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
    std::fill_n(first, pages.before_, sentinel);
    message_bytes += count * sizeof(float);
    most_message_bytes = std::max(most_message_bytes, message_bytes);
    return reinterpret_cast<float*>(first + pages.before_);
  }

  static void free(float* data, std::size_t count) noexcept {
    const MessagePages pages(count);
    auto* const first = reinterpret_cast<unsigned char*>(data) - pages.before_;
    if (!std::all_of(first, first + pages.before_, [](unsigned char byte) { return byte == sentinel; }))
      ++writes_before_messages;
    munmap(first - page(), pages.size_ + 2 * page());
    message_bytes -= count * sizeof(float);
  }

 private:
  static constexpr unsigned char sentinel = 0xa5;

  explicit MessagePages(std::size_t count)
      : size_((count * sizeof(float) + page() - 1) / page() * page()), before_(size_ - count * sizeof(float)) {}
  static std::size_t page() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

  std::size_t size_, before_;
};

inline const bool guards_messages = [] {
  mpi::internal::floats_source = {.allocate = MessagePages::allocate, .free = MessagePages::free, .kept = false};
  return true;
}();

}  // namespace headlane::test
