// Counts what operator new hands out in this program, and lets it fail. Included by one source file of a program only.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HEADLANE_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define HEADLANE_TEST_SANITIZED 1
#endif
#endif

namespace headlane::test {
inline std::atomic<long> allocations{0};
inline thread_local bool no_memory = false;  ///< operator new throws std::bad_alloc in this thread

/// Whether f() allocates nothing from its third call on.
template <class F>
bool allocates_nothing_once_warm(const F& f) {
  f(), f();
  const long before = allocations;
  for (int i = 0; i < 20; ++i) f();
  return allocations == before;
}

}  // namespace headlane::test

// Sanitizers bring their own operator new. Not inlined, or GCC sees malloc() or free() on one side only and warns.
#if !defined(HEADLANE_TEST_SANITIZED)
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++headlane::test::allocations;
  if (headlane::test::no_memory) throw std::bad_alloc();
  if (void* p = std::malloc(size == 0 ? 1 : size)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
  ++headlane::test::allocations;
  if (headlane::test::no_memory) throw std::bad_alloc();
  void* p = nullptr;
  if (posix_memalign(&p, std::max(sizeof(void*), static_cast<std::size_t>(alignment)), size) != 0)
    throw std::bad_alloc();
  return p;
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
#endif
