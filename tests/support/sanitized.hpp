// HEADLANE_TEST_SANITIZED: the program is built with a sanitizer, which brings its own memory
// functions.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HEADLANE_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define HEADLANE_TEST_SANITIZED 1
#endif
#endif
