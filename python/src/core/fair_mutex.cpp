#include "core/fair_mutex.hpp"

#include <memory>
#include <pthread.h>
#include <stdexcept>

namespace headlane::python {

struct FairMutex::List {
  std::mutex mutex{};
  FairMutex* first = nullptr;

  List() {
    pthread_atfork([] { list().mutex.lock(); }, [] { list().mutex.unlock(); }, [] { list().renew(); });
  }

  /// In a child of fork(), which has no thread but this one: as if each mutex were new.
  void renew() {
    for (FairMutex* one = first; one != nullptr; one = one->next_) {
      const bool lost = one->state_.lost || one->state_.writing;
      std::construct_at(&one->state_)->lost = lost;
    }
    mutex.unlock();
  }
};

FairMutex::List& FairMutex::list() {
  static List* const all = new List();  // never deleted: other threads may outlive static objects
  return *all;
}

FairMutex::FairMutex() {
  List& all = list();
  const std::lock_guard lock(all.mutex);
  next_ = all.first;
  if (next_ != nullptr) next_->previous_ = this;
  all.first = this;
}

FairMutex::~FairMutex() {
  List& all = list();
  const std::lock_guard lock(all.mutex);
  (previous_ != nullptr ? previous_->next_ : all.first) = next_;
  if (next_ != nullptr) next_->previous_ = previous_;
}

void FairMutex::require_whole() const {
  if (state_.lost) throw std::runtime_error("KvCache: another thread was changing it when fork() made this process");
}

void FairMutex::call_next() {
  ++state_.serving;
  state_.changed.notify_all();
}

void FairMutex::lock() {
  std::unique_lock held(state_.mutex);
  require_whole();
  const unsigned number = state_.next++;
  state_.changed.wait(held, [&] { return state_.serving == number && state_.readers == 0; });
  state_.writing = true;
}

void FairMutex::lock_shared() {
  std::unique_lock held(state_.mutex);
  require_whole();
  const unsigned number = state_.next++;
  state_.changed.wait(held, [&] { return state_.serving == number; });
  ++state_.readers;
  call_next();
}

bool FairMutex::try_lock() {
  const std::lock_guard held(state_.mutex);
  require_whole();
  if (state_.next != state_.serving || state_.readers != 0) return false;
  ++state_.next;
  return state_.writing = true;
}

bool FairMutex::try_lock_shared() {
  const std::lock_guard held(state_.mutex);
  require_whole();
  if (state_.next != state_.serving) return false;
  ++state_.readers;
  return true;
}

void FairMutex::unlock() {
  const std::lock_guard held(state_.mutex);
  state_.writing = false;
  call_next();
}

void FairMutex::unlock_shared() {
  const std::lock_guard held(state_.mutex);
  if (--state_.readers == 0) state_.changed.notify_all();
}

}  // namespace headlane::python
