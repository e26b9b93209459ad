// Counts the threads that this program starts and the blocks of memory that it requests, in all
// libraries of the process. Include it in one source file of a program only; not with sanitizers,
// which have their own.
#pragma once

#include "support/sanitized.hpp"

#include <atomic>
#include <cstddef>
#include <cstdlib>

#if !defined(HEADLANE_TEST_SANITIZED) && defined(__GLIBC__)
#define HEADLANE_TEST_COUNTS_SYSTEM_CALLS 1

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>

namespace headlane::test {
inline std::atomic<long> threads_started{0};
inline std::atomic<long> blocks_asked_for{0};  ///< by malloc and its like
}  // namespace headlane::test

// NOLINTBEGIN(bugprone-reserved-identifier, readability-inconsistent-declaration-parameter-name)
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t size) noexcept {
  ++headlane::test::blocks_asked_for;
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) noexcept {
  ++headlane::test::blocks_asked_for;
  return __libc_calloc(count, size);
}
void* realloc(void* p, std::size_t size) noexcept {
  ++headlane::test::blocks_asked_for;
  return __libc_realloc(p, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  ++headlane::test::blocks_asked_for;
  return __libc_memalign(alignment, size);
}

// The runtime of OpenMP calls this one too: a program's symbols come before those of its libraries.
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*), void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  ++headlane::test::threads_started;
  return create(thread, attributes, start, argument);
}
}
// NOLINTEND(bugprone-reserved-identifier, readability-inconsistent-declaration-parameter-name)
#endif
