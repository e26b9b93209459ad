// Counts the allocations of this program (operator new, aligned_alloc, calloc of large blocks) and
// makes them fail. Include it in one source file of a program only.
#pragma once

#include "support/sanitized.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <malloc.h>
#include <new>

namespace headlane::test {
inline std::atomic<long> allocations{0};
inline std::atomic<long> live_blocks{0};     ///< from operator new, not deleted yet
inline thread_local bool no_memory = false;  ///< every allocation of this thread fails
inline std::atomic<long> until_failure{
    -1};  ///< so many more succeed, in all threads, then one fails; below 0: none fails

/// Whether the allocation that is asked for now has to fail.
inline bool refused() {
  ++allocations;
  return no_memory || (until_failure.load() >= 0 && until_failure.fetch_sub(1) == 0);
}

/// The addresses of the blocks from aligned_alloc and calloc that have not been freed.
class CBlocks {
 public:
  void* add(void* memory) {
    if (memory != nullptr && exchange(nullptr, memory, slots_.size())) ++live_;
    return memory;
  }
  void remove(void* memory) {
    if (memory != nullptr && exchange(memory, nullptr, used_)) --live_;
  }
  [[nodiscard]] long live() const { return live_; }

 private:
  bool exchange(void* old, void* now, std::size_t end) {
    for (std::size_t i = 0; i < end; ++i) {
      void* expected = old;
      if (slots_[i].load(std::memory_order_relaxed) != old || !slots_[i].compare_exchange_strong(expected, now))
        continue;
      for (std::size_t used = used_; used <= i && !used_.compare_exchange_weak(used, i + 1);) continue;
      return true;
    }
    return false;
  }

  std::array<std::atomic<void*>, 4096> slots_{};
  std::atomic<std::size_t> used_{0};  // slots from here on were never used
  std::atomic<long> live_{0};
};
inline constinit CBlocks c_blocks;

/// Whether f() allocates nothing from its third call on.
template <class F>
bool allocates_nothing_once_warm(const F& f) {
  f(), f();
  const long before = allocations;
  for (int i = 0; i < 20; ++i) f();
  return allocations == before;
}

}  // namespace headlane::test

// Sanitizers bring their own operator new. Not inlined: otherwise GCC warns where it inlined only
// one of malloc() and free().
#if !defined(HEADLANE_TEST_SANITIZED)
[[gnu::noinline]] void* operator new(std::size_t size) {
  if (headlane::test::refused()) throw std::bad_alloc();
  void* p = std::malloc(size == 0 ? 1 : size);
  if (p == nullptr) throw std::bad_alloc();
  ++headlane::test::live_blocks;
  return p;
}
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
  if (headlane::test::refused()) throw std::bad_alloc();
  void* p = nullptr;
  if (posix_memalign(&p, std::max(sizeof(void*), static_cast<std::size_t>(alignment)), size) != 0)
    throw std::bad_alloc();
  ++headlane::test::live_blocks;
  return p;
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  if (p != nullptr) --headlane::test::live_blocks;
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { operator delete(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { operator delete(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept { operator delete(p); }

// Small blocks of calloc never fail: they belong to the C and OpenMP runtimes, which would exit.
extern "C" {
void* __libc_calloc(std::size_t count, std::size_t size);        // NOLINT(bugprone-reserved-identifier)
void* __libc_memalign(std::size_t alignment, std::size_t size);  // NOLINT(bugprone-reserved-identifier)
void __libc_free(void* block);                                   // NOLINT(bugprone-reserved-identifier)
[[gnu::noinline]] void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  if (headlane::test::refused()) return nullptr;
  return headlane::test::c_blocks.add(__libc_memalign(alignment, size));
}
// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name)
[[gnu::noinline]] void* calloc(std::size_t count, std::size_t size) noexcept {
  constexpr std::size_t large = 4096;
  if (size == 0 || count < large / size) return __libc_calloc(count, size);
  if (headlane::test::refused()) return nullptr;
  return headlane::test::c_blocks.add(__libc_calloc(count, size));
}
// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name)
[[gnu::noinline]] void free(void* block) noexcept {
  headlane::test::c_blocks.remove(block);
  __libc_free(block);
}
}
#endif
