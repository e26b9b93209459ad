// Scratch memory: one growing buffer per thread and purpose, kept between calls, so that a warm
// call allocates nothing. Buffers live as long as their thread; those above `keep_floats` as long
// as a call.
#pragma once

#include <headlane/index.hpp>

#include <atomic>
#include <memory>
#include <type_traits>

namespace headlane::internal {

/// Buffers that are in use at the same time in one thread have different purposes.
enum class Purpose {
  rows,
  panels,
  block,
  factor,
  shared,
  frequencies,
  tasks,
  batches,
  wide,
  heads,
  memory,
  sum,
  second_sum,
  normed,
  half,
  option,
  team,
  team_begins,
  count
};

/// At least `floats` floats, aligned to a page, not initialised; valid until the same thread asks
/// for the same purpose again or its outermost CallScope ends. Throws std::bad_alloc.
float* scratch(Purpose purpose, Index floats);

/// The same as an array of another type.
template <class T>
T* scratch_array(Purpose purpose, Index count) {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);
  constexpr Index floats = (sizeof(T) + sizeof(float) - 1) / sizeof(float);
  return reinterpret_cast<T*>(scratch(purpose, count * floats));
}

/// Registers an object that a thread keeps beside its buffers: `*slot` is deleted and set to null
/// with them.
struct KeptObject {
  void** slot;
  void (*destroy)(void*);
};
void add_kept(const KeptObject& object);

/// An object of the calling thread that is kept between calls, one for each type.
template <class T>
T& kept_object() {
  constinit thread_local void* slot = nullptr;
  if (slot == nullptr) {
    auto made = std::make_unique<T>();
    add_kept({&slot, [](void* object) { delete static_cast<T*>(object); }});
    slot = made.release();
  }
  return *static_cast<T*>(slot);
}

/// Called once in a process, at the latest for its first buffer. It takes 2 µs before threads are
/// started, and some 15 ms afterwards (Linux 6.18).
void prepare_scratch() noexcept;

/// Changes whenever buffers of the calling thread are freed, and their contents with them.
unsigned scratch_epoch() noexcept;

/// Frees the buffers and objects of the calling thread; not during a call.
void free_scratch() noexcept;

/// Sizes that the tasks of one caller have asked for. With a dynamic schedule a thread may run its
/// first task of a kind in any call; by these sizes, all threads of the team get the same buffers
/// after the first one.
struct TaskScratch {
  std::atomic<Index> floats[static_cast<int>(Purpose::count)];
  std::atomic<bool> grown;  ///< since it was last reset
};

/// Allocates buffers of these sizes in the calling thread, as far as memory suffices.
void reserve_scratch(const TaskScratch& sizes) noexcept;

/// Does so when the outermost call of the thread ends. `sizes` lives as long as the thread.
void reserve_scratch_later(const TaskScratch& sizes) noexcept;

/// While it lives, the thread runs tasks of a caller, whose `sizes` it raises.
class TaskScope {
 public:
  explicit TaskScope(TaskScratch& sizes) noexcept;
  TaskScope(const TaskScope&) = delete;
  TaskScope& operator=(const TaskScope&) = delete;
  ~TaskScope();

 private:
  TaskScratch* outer_;
};

/// For CallScope: calls may nest, and the end of the outermost one frees large buffers.
void enter_call() noexcept;
void leave_call() noexcept;

}  // namespace headlane::internal
