// Memory that a thread keeps from call to call: memory that is new to the process costs as much as
// the messages that are written to it.
#pragma once

#include <headlane/index.hpp>

#include <array>
#include <cstddef>
#include <vector>

namespace headlane::mpi::internal {

enum class Slot { chunk, other_chunk, states, blocks, count };

/// `count` floats of a slot, undefined, until the end of the scope. Up to 64 MiB stay with the
/// thread for its next call.
class KeptMemory {
 public:
  KeptMemory(Slot slot, Index count) : memory_(slots()[static_cast<std::size_t>(slot)]) {
    if (memory_.size() >= static_cast<std::size_t>(count)) return;
    memory_ = {};  // nothing is copied
    memory_.resize(static_cast<std::size_t>(count));
  }
  ~KeptMemory() {
    constexpr std::size_t most = std::size_t{64} << 20;
    if (memory_.size() * sizeof(float) > most) memory_ = {};
  }
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;

  [[nodiscard]] float* data() { return memory_.data(); }

 private:
  static std::array<std::vector<float>, static_cast<std::size_t>(Slot::count)>& slots() {
    thread_local std::array<std::vector<float>, static_cast<std::size_t>(Slot::count)> all;
    return all;
  }

  std::vector<float>& memory_;
};

}  // namespace headlane::mpi::internal
