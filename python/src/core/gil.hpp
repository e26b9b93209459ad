// Python's global lock. Before Python 3.14, a thread that asks for it once the interpreter ends is
// itself ended, by pthread_exit(). That unwinds the stack as an exception does, from a destructor
// or through code that may not throw: the whole process would abort.
#pragma once

#include <nanobind/nanobind.h>

#include <unistd.h>

namespace headlane::python {

namespace nb = nanobind;

/// Calls f(), which takes the lock. Where that ends the thread, it waits for the end of the process
/// instead, as it does in Python 3.14. It holds no lock that the process needs to end.
template <class F>
auto take_gil(F f) noexcept {
  try {
    return f();
  } catch (...) {  // glibc's pthread_exit(): the handler may not be left
    while (true) pause();
  }
}

/// Releases the lock; nb::gil_scoped_release aborts as described above.
class GilRelease {
 public:
  GilRelease() : state_(PyEval_SaveThread()) {}
  ~GilRelease() {
    take_gil([&] { PyEval_RestoreThread(state_); });
  }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* state_;
};

/// Takes the lock, within a GilRelease.
class GilAcquire {
 public:
  GilAcquire() : state_(take_gil(&PyGILState_Ensure)) {}
  ~GilAcquire() { PyGILState_Release(state_); }
  GilAcquire(const GilAcquire&) = delete;
  GilAcquire& operator=(const GilAcquire&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace headlane::python
