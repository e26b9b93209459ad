// Shared by all functions of the module: errors, results, and calls of the library without the GIL.
#pragma once

#include "core/message.hpp"
#include "core/scalars.hpp"
#include "core/views.hpp"

#include <headlane/disjoint.hpp>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace headlane::python {

/// The array that a call writes: the caller's `out`, which must have this shape, or a new array of
/// the same kind as `like`.
class Result {
 public:
  Result(const char* function, nb::handle like, nb::handle out, const std::vector<Index>& shape)
      : like_(like), given_(!out.is_none()) {
    object_ = given_ ? nb::borrow(out) : new_array(like, shape.data(), static_cast<int>(shape.size()));
    array_.emplace(function, "out", object_, Element::float32, Access::write);
    bool same = array_->rank() == static_cast<int>(shape.size());
    for (std::size_t axis = 0; same && axis < shape.size(); ++axis)
      same = array_->size(static_cast<int>(axis)) == shape[axis];
    require(same, function, ": out has shape ", *array_, ", the result ", shape);
  }

  [[nodiscard]] const Array& array() const { return *array_; }

  /// Throws ValueError if two elements of the caller's `out` are the same, or one is an element of
  /// an input (null: absent). The library checks this within one call; this is for several.
  void require_apart(const char* function, const std::vector<const Array*>& inputs) const {
    if (!given_) return;
    std::vector<NamedView> views;
    for (const Array* input : inputs)
      if (input != nullptr) views.push_back({input->name(), any_view<const float>(*input)});
    require_disjoint(function, {"out", any_view<const float>(*array_)}, views);
  }

  /// To return once it has been written: `out` itself, or the new array.
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

/// The C++ object, null if `object` has another type. Throws TypeError if its __init__() was not
/// called.
template <class T>
T* instance_of(const char* function, const char* name, nb::handle object) {
  if (!nb::isinstance<T>(object)) return nullptr;
  if (!nb::inst_ready(object))
    fail_as_type(function, ": ", name, " was not initialised: its __init__() was not called");
  return nb::inst_ptr<T>(object);
}

/// Lets a signal (Ctrl-C) end a long call. To be called repeatedly without the GIL, by the thread
/// that Python called; throws the exception of the signal's handler. Takes the GIL at most every 10
/// ms, since other threads may hold it.
class Signals {
 public:
  void operator()() {
    const auto now = std::chrono::steady_clock::now();
    if (now - checked_ < std::chrono::milliseconds(10)) return;
    const nb::gil_scoped_acquire acquire;
    checked_ = std::chrono::steady_clock::now();
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }

 private:
  std::chrono::steady_clock::time_point checked_ = std::chrono::steady_clock::now();
};

/// A message of the library with Python's spelling of a method: KvCache.append for KvCache::append.
inline std::string with_dots(std::string message) {
  if (const auto at = message.find("::"); at != std::string::npos && at == message.find(':')) {
    message[at] = '.';
    message.erase(at + 1, 1);
  }
  return message;
}

/// Runs `f` without the GIL. A message of the library that names another function is prefixed with
/// `function`.
template <class F>
void compute(const char* function, F f) {
  try {
    const nb::gil_scoped_release release;
    f();
  } catch (const std::invalid_argument& error) {
    const std::string message = with_dots(error.what()), prefix = joined(function, ": ");
    throw std::invalid_argument(message.starts_with(prefix) ? message : prefix + message);
  }
}

}  // namespace headlane::python
