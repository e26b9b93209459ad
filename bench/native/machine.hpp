// The machine that the benchmark runs on: its name and its measured limits. The clock of a shared
// machine varies, so a limit takes a few milliseconds and is measured anew beside each timing.
#pragma once

#include "buffer.hpp"

#include <cstddef>
#include <string>
#include <string_view>

namespace bench {

/// Seconds since an arbitrary fixed time.
double now();

std::string cpu_name();
int cores();
std::string compiler();
std::string xsimd_version();

/// Peak binary32 operations per second (an fma counts as two) with the registers of `isa`, on
/// `threads` cores at once. "portable" has the registers of "scalar". Returns 0 for an unknown
/// name.
double fma_peak(std::string_view isa, int threads);

/// Bytes per second when `threads` threads read the buffer repeatedly, each its share.
double read_rate(const void* data, std::size_t bytes, int threads);

/// Seconds to copy `bytes` from one buffer to another, each thread its share.
double copy_seconds(const void* from, void* to, std::size_t bytes, int threads);

/// Elements per second of such a copy: the limit of an operation that reads x and writes y.
inline double copied_elements(const Buffer& x, const Buffer& y, int threads) {
  return static_cast<double>(x.values().size()) / copy_seconds(x.data(), y.data(), x.bytes(), threads);
}

}  // namespace bench
