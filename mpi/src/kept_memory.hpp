// Memory that a thread keeps from call to call: memory that is new to the process costs as much as
// the messages that are written to it.
#pragma once

#include "messages.hpp"

#include <headlane/index.hpp>

#include <array>
#include <cstddef>

namespace headlane::mpi::internal {

enum class Slot { chunk, other_chunk, states, blocks, count };

/// `count` floats of a slot, undefined, until the end of the scope. Up to 64 MiB stay with the
/// thread for its next call; nothing does if messages are under way, as with MessageMemory.
class KeptMemory {
 public:
  KeptMemory(const Messages& messages, Slot slot, Index count)
      : messages_(messages), memory_(slots()[static_cast<std::size_t>(slot)]) {
    const auto size = static_cast<std::size_t>(count);
    if (floats_source.kept ? memory_.size() >= size : memory_.size() == size) return;
    {
      const Floats old = std::move(memory_);
    }  // freed first
    memory_ = Floats(size);
  }
  ~KeptMemory() {
    constexpr std::size_t most = std::size_t{64} << 20;
    if (messages_.under_way() > 0) memory_.abandon();
    else if (!floats_source.kept || memory_.size() * sizeof(float) > most) const Floats old = std::move(memory_);
  }
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;

  [[nodiscard]] float* data() { return memory_.data(); }

 private:
  static std::array<Floats, static_cast<std::size_t>(Slot::count)>& slots() {
    thread_local std::array<Floats, static_cast<std::size_t>(Slot::count)> all;
    return all;
  }

  const Messages& messages_;
  Floats& memory_;
};

}  // namespace headlane::mpi::internal
