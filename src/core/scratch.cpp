#include "core/scratch.hpp"

#include "core/huge_pages.hpp"
#include "core/round.hpp"

#include <cassert>
#include <cstdlib>
#include <mutex>
#include <new>
#include <pthread.h>

#ifdef __linux__
#include <linux/membarrier.h>

#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace headlane::internal {
namespace {

constexpr int purposes = static_cast<int>(Purpose::count);
constexpr int max_kept = 8;
constexpr Index page = 1024;  // in floats
/// Larger buffers are freed when the call ends. Faulting 64 MiB in again takes some 10 ms; layers
/// that need so much compute for more than a second.
constexpr Index keep_floats = Index{64} << 20 >> 2;

struct Buffer {
  float* data;
  Index size;  // in floats
};

/// The buffers of a thread. No destructor: a destructor of a thread_local object would run before
/// those of global objects, which may still compute, and would keep a plugin from being unmapped.
struct ThreadScratch {
  Buffer buffers[purposes];
  KeptObject kept[max_kept];
  int kept_count;
  TaskScratch* tasks;          // sizes of the caller whose task this thread runs
  const TaskScratch* reserve;  // applied at the end of the outermost call
  ThreadScratch *next, *previous;
  std::atomic<int> calls;  // nested
  unsigned epoch;
  bool listed, large;
};

constinit thread_local ThreadScratch mine{};

/// The list of all threads that have buffers, which are freed when the library is unloaded.
constinit std::mutex list_mutex;
constinit ThreadScratch* list = nullptr;
/// Set by unload(): a call that begins waits until it has freed buffers.
constinit std::atomic<bool> unloading{false};

void free_buffer(Buffer& buffer) {
  std::free(buffer.data);
  buffer = {};
}

void free_buffers(ThreadScratch& thread) {
  for (Buffer& buffer : thread.buffers) free_buffer(buffer);
  for (; thread.kept_count > 0; --thread.kept_count) {
    const KeptObject& object = thread.kept[thread.kept_count - 1];
    object.destroy(*object.slot);
    *object.slot = nullptr;
  }
  ++thread.epoch;
}

/// Called at the end of a thread.
void on_exit(void* data) {
  auto& thread = *static_cast<ThreadScratch*>(data);
  const std::lock_guard lock(list_mutex);
  if (!thread.listed) return;  // unload() has freed them
  (thread.previous != nullptr ? thread.previous->next : list) = thread.next;
  if (thread.next != nullptr) thread.next->previous = thread.previous;
  thread.listed = false;
  free_buffers(thread);
}

/// Calls on_exit at the end of each thread that has set it.
struct ExitKey {
  pthread_key_t key;
  std::atomic<bool> valid;
};
constinit ExitKey exit_key{};

enum class Fence { prepare, all_threads };

/// Fence::all_threads: one in all threads at once, so that enter_call() needs none. Returns false
/// if there is none.
bool fence([[maybe_unused]] Fence what) {
#ifdef __linux__
  const int command =
      what == Fence::prepare ? MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED : MEMBARRIER_CMD_PRIVATE_EXPEDITED;
  return syscall(SYS_membarrier, command, 0, 0) == 0;
#else
  return false;
#endif
}

void add_to_list(ThreadScratch& thread) {
  if (thread.listed) return;
  prepare_scratch();
  // Where this fails, as behind unload(), the buffers outlive the thread.
  if (exit_key.valid) pthread_setspecific(exit_key.key, &thread);
  const std::lock_guard lock(list_mutex);
  thread.previous = nullptr;
  thread.next = list;
  if (list != nullptr) list->previous = &thread;
  list = &thread;
  thread.listed = true;
}

/// Called at the end of the process, or when the plugin that the library is part of is unloaded.
/// Threads that still compute, which a process may have at its end, keep their buffers.
[[gnu::destructor]] void unload() {
  unloading.store(true, std::memory_order_relaxed);
  const bool sees_calls = fence(Fence::all_threads);
  {
    const std::lock_guard lock(list_mutex);
    for (ThreadScratch* thread = list; thread != nullptr; thread = thread->next) {
      thread->listed = false;
      const bool is_idle = thread->calls.load(std::memory_order_acquire) == 0;
      if (is_idle && (sees_calls || thread == &mine)) free_buffers(*thread);
    }
    list = nullptr;
  }
  if (exit_key.valid.exchange(false)) pthread_key_delete(exit_key.key);
}

/// Returns false if memory runs out.
bool grow(Buffer& buffer, Index floats) {
  add_to_list(mine);
  const Index size = round_up(floats, page);
  free_buffer(buffer);
  ++mine.epoch;
  const auto bytes = static_cast<std::size_t>(size) * sizeof(float);
  buffer.data = static_cast<float*>(allocate_pages(bytes, page * sizeof(float)));
  if (buffer.data == nullptr) return false;
  buffer.size = size;
  mine.large = mine.large || size > keep_floats;
  return true;
}

/// Records a size that a task asks for, even if its own thread has it already from a call that was
/// not divided into tasks.
void note(TaskScratch& tasks, std::size_t purpose, Index floats) {
  std::atomic<Index>& mark = tasks.floats[purpose];
  Index now = mark.load(std::memory_order_relaxed);
  if (now >= floats || floats > keep_floats) return;
  while (now < floats && !mark.compare_exchange_weak(now, floats, std::memory_order_relaxed)) {
  }
  tasks.grown.store(true, std::memory_order_relaxed);
}

}  // namespace

void prepare_scratch() noexcept {
  static const bool prepared = [] {
    // A child of fork() has one thread, which must not wait for a lock that another one held. The
    // memory of others becomes that of new threads.
    pthread_atfork([] { list_mutex.lock(); }, [] { list_mutex.unlock(); },
                   [] {
                     mine.next = mine.previous = nullptr;
                     list = mine.listed ? &mine : nullptr;
                     list_mutex.unlock();
                   });
    exit_key.valid = pthread_key_create(&exit_key.key, on_exit) == 0;
    return fence(Fence::prepare);
  }();
  static_cast<void>(prepared);
}

float* scratch(Purpose purpose, Index floats) {
  assert(mine.calls.load(std::memory_order_relaxed) > 0);  // otherwise the end of an inner call may free it
  const auto index = static_cast<std::size_t>(purpose);
  Buffer& buffer = mine.buffers[index];
  if (mine.tasks != nullptr) note(*mine.tasks, index, floats);
  if (buffer.size < floats && !grow(buffer, floats)) throw std::bad_alloc();
  return buffer.data;
}

void add_kept(const KeptObject& object) {
  assert(mine.kept_count < max_kept);
  add_to_list(mine);
  mine.kept[mine.kept_count++] = object;
}

unsigned scratch_epoch() noexcept { return mine.epoch; }

void free_scratch() noexcept { free_buffers(mine); }

void reserve_scratch(const TaskScratch& sizes) noexcept {
  for (std::size_t i = 0; i < purposes; ++i) {
    const Index floats = sizes.floats[i].load(std::memory_order_relaxed);
    if (mine.buffers[i].size < floats && !grow(mine.buffers[i], floats)) return;  // the call that needs it reports it
  }
}

void reserve_scratch_later(const TaskScratch& sizes) noexcept { mine.reserve = &sizes; }

TaskScope::TaskScope(TaskScratch& sizes) noexcept : outer_(mine.tasks) { mine.tasks = &sizes; }
TaskScope::~TaskScope() { mine.tasks = outer_; }

void enter_call() noexcept {
  mine.calls.store(mine.calls.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  std::atomic_signal_fence(std::memory_order_seq_cst);  // the rest of the fence is unload()'s
  if (unloading.load(std::memory_order_relaxed)) [[unlikely]] {
    const std::lock_guard lock(list_mutex);
  }
}

void leave_call() noexcept {
  const int calls = mine.calls.load(std::memory_order_relaxed) - 1;
  if (calls == 0 && mine.large) {
    for (Buffer& buffer : mine.buffers)
      if (buffer.size > keep_floats) free_buffer(buffer);
    ++mine.epoch;
    mine.large = false;
  }
  if (calls == 0 && mine.reserve != nullptr) {
    reserve_scratch(*mine.reserve);
    mine.reserve = nullptr;
  }
  mine.calls.store(calls, std::memory_order_release);
}

}  // namespace headlane::internal
