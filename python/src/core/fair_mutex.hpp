// A lock that is exclusive or shared, for std::unique_lock, std::shared_lock and std::lock.
#pragma once

#include <condition_variable>
#include <mutex>

namespace headlane::python {

/// First come, first served: std::shared_mutex lets readers that overlap keep a writer waiting for
/// ever. Threads of the parent do not exist in a child of fork(), and neither do their locks:
/// shared ones are free there, but what one of them was changing is in an unknown state.
class FairMutex {
 public:
  FairMutex();
  ~FairMutex();
  FairMutex(const FairMutex&) = delete;
  FairMutex& operator=(const FairMutex&) = delete;

  /// Throw std::runtime_error if the state is unknown.
  void lock();
  void lock_shared();
  bool try_lock();
  bool try_lock_shared();
  void unlock();
  void unlock_shared();

 private:
  struct State {
    std::mutex mutex{};  // never held while anything else is waited for
    std::condition_variable changed{};
    unsigned next = 0, serving = 0;  // numbers of those who wait: given out, and called
    unsigned readers = 0;
    bool writing = false, lost = false;
  };

  void require_whole() const;
  void call_next();
  /// The mutexes of the process, which fork() looks through.
  struct List;
  static List& list();

  State state_{};
  FairMutex *next_ = nullptr, *previous_ = nullptr;
};

}  // namespace headlane::python
