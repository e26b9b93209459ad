// What the functions of the module share: results, messages, and calls of the library without the GIL.
#pragma once

#include "core/array.hpp"
#include "core/scalars.hpp"

#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace headlane::python {

inline void append(std::string& message, std::string_view text) { message += text; }

template <class T>
  requires std::is_arithmetic_v<T>
void append(std::string& message, T number) {
  message += std::to_string(number);
}

inline void append(std::string& message, const std::vector<Index>& shape) {
  for (std::size_t axis = 0; axis < shape.size(); ++axis)
    message += (axis == 0 ? "[" : ", ") + std::to_string(shape[axis]);
  message += shape.empty() ? "[]" : "]";
}

/// An array's shape.
inline void append(std::string& message, const Array& array) { append(message, array.shape()); }

/// Throws ValueError unless `condition`; the parts are joined to the message only then.
template <class... Parts>
void require(bool condition, const Parts&... parts) {
  if (condition) return;
  std::string message;
  (append(message, parts), ...);
  throw std::invalid_argument(message);
}

/// The array that a call writes: the caller's `out`, which must have the shape, or a new one of the kind that `like` is.
class Result {
 public:
  Result(const char* function, nb::handle like, nb::handle out, const std::vector<Index>& shape)
      : like_(like), given_(!out.is_none()) {
    object_ = given_ ? nb::borrow(out) : new_array(like, shape.data(), static_cast<int>(shape.size()));
    array_.emplace(function, "out", object_, Access::write);
    array_->require_float();
    bool same = array_->rank() == static_cast<int>(shape.size());
    for (std::size_t axis = 0; same && axis < shape.size(); ++axis)
      same = array_->size(static_cast<int>(axis)) == shape[axis];
    require(same, function, ": out has shape ", *array_, ", the result ", shape);
  }

  [[nodiscard]] const Array& array() const { return *array_; }

  /// For the caller, when it has been written: `out` itself, or the new array.
  [[nodiscard]] nb::object object() const {
    if (!given_) return finished(like_, object_);
    announce_write(object_);
    return object_;
  }

 private:
  nb::handle like_;
  bool given_;
  nb::object object_;
  std::optional<Array> array_;
};

/// The C++ object; null if the object has another type. Throws TypeError for one whose __init__() was not called.
template <class T>
T* instance_of(const char* function, const char* name, nb::handle object) {
  if (!nb::isinstance<T>(object)) return nullptr;
  if (!nb::inst_ready(object))
    throw nb::type_error(
        (std::string(function) + ": " + name + " was not initialised: its __init__() was not called").c_str());
  return nb::inst_ptr<T>(object);
}

/// Lets a signal (Ctrl-C) end a long call: to be called now and then without the GIL, by the thread that Python called. Throws what
/// the signal's handler raised. It asks Python at most every 10 ms: other threads may hold the GIL.
class Signals {
 public:
  void operator()() {
    const auto now = std::chrono::steady_clock::now();
    if (now - asked_ < std::chrono::milliseconds(10)) return;
    const nb::gil_scoped_acquire acquire;
    asked_ = std::chrono::steady_clock::now();
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }

 private:
  std::chrono::steady_clock::time_point asked_ = std::chrono::steady_clock::now();
};

/// Runs `f` without the GIL. A message of the library that names its own function is put behind the name of ours.
template <class F>
void compute(const char* function, F f) {
  try {
    const nb::gil_scoped_release release;
    f();
  } catch (const std::invalid_argument& error) {
    const std::string message = error.what(), prefix = std::string(function) + ": ";
    if (message.starts_with(prefix)) throw;
    throw std::invalid_argument(prefix + message);
  }
}

}  // namespace headlane::python
