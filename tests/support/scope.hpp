// Settings of the library for the duration of a block, and properties of the machine.
#pragma once

#include <headlane/runtime.hpp>

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace headlane::test {

/// Uses an instruction set until the end of the block.
class IsaScope {
 public:
  explicit IsaScope(std::string_view name) : previous_(isa()) { set_isa(name); }
  IsaScope(const IsaScope&) = delete;
  IsaScope& operator=(const IsaScope&) = delete;
  ~IsaScope() { set_isa(previous_); }

 private:
  std::string previous_;
};

/// Uses a number of threads until the end of the block.
class ThreadsScope {
 public:
  explicit ThreadsScope(int threads) { set_num_threads(threads); }
  ThreadsScope(const ThreadsScope&) = delete;
  ThreadsScope& operator=(const ThreadsScope&) = delete;
  ~ThreadsScope() { set_num_threads(0); }
};

/// With or without the extensions of the instruction set, if this CPU has them, until the end of
/// the block.
class ExtensionScope {
 public:
  explicit ExtensionScope(bool extended) : ExtensionScope(extended ? "all" : "none") {}
  /// What HEADLANE_EXTENSIONS says.
  explicit ExtensionScope(const char* extensions) {
    setenv(variable, extensions, 1);
    set_isa(isa());
  }
  ExtensionScope(const ExtensionScope&) = delete;
  ExtensionScope& operator=(const ExtensionScope&) = delete;
  ~ExtensionScope() {
    unsetenv(variable);
    set_isa(isa());
  }

 private:
  static constexpr const char* variable = "HEADLANE_EXTENSIONS";
};

/// Whether sweeps are reduced: for kernels without SIMD, and on AArch64, whose tests run under an
/// emulator. Decided by name, not by time, so that every run does the same.
inline bool slow_isa() {
#if defined(__x86_64__)
  return isa() == "scalar" || isa() == "portable";
#else
  return true;
#endif
}

}  // namespace headlane::test
