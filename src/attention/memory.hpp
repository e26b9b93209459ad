// The memory of a call of attention: parts of the caller's workspace, or of scratch memory.
#pragma once

#include "attention/plan.hpp"
#include "core/check.hpp"
#include "core/round.hpp"
#include "core/scratch.hpp"

#include <cstddef>

namespace headlane::internal {

/// Carves memory into parts, each of whole pages. Without memory it only measures, so that one
/// function tells both the size and the addresses.
class Arena {
 public:
  explicit Arena(float* memory = nullptr) : memory_(memory) {}

  /// The next `floats` floats; null without memory.
  float* take(Index floats) {
    constexpr Index page = 1024;  // in floats
    float* const part = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += round_up(floats, page);
    return part;
  }
  /// Floats that were taken.
  [[nodiscard]] Index used() const { return used_; }

 private:
  float* memory_;
  Index used_ = 0;
};

/// Floats that carve(arena) takes.
template <class Carve>
Index measured(const Carve& carve) {
  Arena arena;
  carve(arena);
  return arena.used();
}

/// carve(arena) over the calling thread's scratch memory.
template <class Carve>
auto carved_from_scratch(Purpose purpose, const Carve& carve) {
  Arena arena(scratch(purpose, measured(carve)));
  return carve(arena);
}

/// Per-thread scratch buffers.
struct ThreadBuffers {
  float* q;          // packed query rows
  float* scores;     // of a tile
  float* per_row;    // [2, max_rows]: slopes and sinks
  float* distances;  // relative biases by distance
  float* state;      // running result of the rows
  float* queries;    // a panel of them, for few keys
  float* unpacked;   // keys that are read in rows, or a widened block of a cache
  float* packed;     // blocks of keys and values
};

/// The first four, for tasks of `rows` rows; the others are null.
ThreadBuffers carve_row_buffers(Arena& arena, const AttentionProblem& p, Index rows, bool rows_are_heads);

/// The memory of a call.
class AttentionMemory {
 public:
  AttentionMemory(const AttentionProblem& p, const TaskPlan& plan);
  /// Obtains the memory that all threads share. Throws std::invalid_argument if the caller's
  /// workspace is too small.
  void open(Caller caller);

  /// Memory that all threads share; null if there is none.
  [[nodiscard]] float* shared() const { return shared_; }
  [[nodiscard]] ThreadBuffers of_thread(int thread) const;
  [[nodiscard]] std::size_t bytes() const;

 private:
  [[nodiscard]] ThreadBuffers carve(Arena& arena) const;

  const AttentionProblem& p_;
  const TaskPlan& plan_;
  Index shared_floats_, thread_floats_;
  float *shared_ = nullptr, *workspace_ = nullptr;
};

}  // namespace headlane::internal
