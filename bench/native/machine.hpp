// The machine the benchmark runs on: its names, and what it can do at most, measured. The clock of a shared machine moves, so
// every limit takes a few milliseconds and is measured again right beside each timing.
#pragma once

#include "buffer.hpp"

#include <cstddef>
#include <string>
#include <string_view>

namespace bench {

/// Seconds since some fixed moment.
double now();

std::string cpu_name();
int cores();
std::string compiler();
std::string xsimd_version();

/// Floating-point operations per second (an fma is two), binary32, with the registers of `isa` ("portable" has those of
/// "scalar"), on `threads` cores at once. 0 for an unknown name.
double fma_peak(std::string_view isa, int threads);

/// Bytes per second when `threads` threads read the buffer, each its share, again and again.
double read_rate(const void* data, std::size_t bytes, int threads);

/// Seconds to copy `bytes` from one buffer to another, each thread its share.
double copy_seconds(const void* from, void* to, std::size_t bytes, int threads);

/// Elements a second of such a copy: the limit of what reads x and writes y, as large.
inline double copied_elements(const Buffer& x, const Buffer& y, int threads) {
  return static_cast<double>(x.values().size()) / copy_seconds(x.data(), y.data(), x.bytes(), threads);
}

}  // namespace bench
