// A call from Python: its error messages, its arguments that are numbers, flags or text, copies of
// its arrays of 16 bits, and its work without the GIL.
#pragma once

#include "core/float_copy.hpp"
#include "core/floating_point_scope.hpp"
#include "core/gil.hpp"
#include "core/text.hpp"

#include <nanobind/nanobind.h>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headlane::python {

namespace nb = nanobind;

/// A message of the library with Python's spelling of a method: KvCache.append for KvCache::append.
std::string with_dots(std::string message);

/// The function that Python called. Each function of the module makes one when it begins, with the
/// name that its messages begin with: "gemm: …". An argument of a wrong type is a TypeError that
/// names the argument.
///
/// A const Call, too, collects the copies that compute() converts and its number of threads.
class Call {
 public:
  /// `function` must outlive the call.
  explicit Call(const char* function) : function_(function) {}
  ~Call() = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  [[nodiscard]] const char* function() const { return function_; }

  /// "function: " and the parts.
  template <class... Parts>
  [[nodiscard]] std::string message(const Parts&... parts) const {
    return joined(function_, ": ", parts...);
  }

  /// Throws ValueError unless `condition`; the message is joined only then.
  template <class... Parts>
  void require(bool condition, const Parts&... parts) const {
    if (!condition) throw std::invalid_argument(message(parts...));
  }

  /// Throws TypeError.
  template <class... Parts>
  [[noreturn]] void fail_as_type(const Parts&... parts) const {
    throw nb::type_error(message(parts...).c_str());
  }
  /// Throws TypeError: "function: name is VALUE; wanted: …".
  [[noreturn]] void refuse_value(std::string_view name, nb::handle given, std::string_view wanted) const;
  /// Throws TypeError: "function: name has type TYPE; wanted: …".
  [[noreturn]] void refuse_type(std::string_view name, nb::handle given, std::string_view wanted) const;

  /// Any object with __index__: integers of Python, NumPy and PyTorch. Throws ValueError beyond 64
  /// bits.
  [[nodiscard]] Index integer(std::string_view name, nb::handle given) const;
  /// An element of a sequence; messages name name[index].
  [[nodiscard]] Index integer(std::string_view name, std::size_t index, nb::handle given) const;
  /// One integer, or a sequence of integers (an array, too).
  [[nodiscard]] std::vector<Index> integers(std::string_view name, nb::handle given) const;
  /// The same; nothing if it is no sequence.
  [[nodiscard]] std::optional<std::vector<Index>> several_integers(std::string_view name, nb::handle given) const;

  /// A bool of Python or NumPy.
  [[nodiscard]] bool flag(std::string_view name, nb::handle given) const;

  /// Any real number. float32() throws ValueError for a finite one beyond its range.
  [[nodiscard]] double float64(std::string_view name, nb::handle given) const;
  [[nodiscard]] float float32(std::string_view name, nb::handle given) const;

  /// A str, in UTF-8. Throws ValueError if it has surrogates, which are not Unicode text.
  [[nodiscard]] std::string text(std::string_view name, nb::handle given) const;

  /// A maximum number of threads, for compute() too. None and 0 both mean the setting of the
  /// process.
  [[nodiscard]] int threads(nb::handle given, std::string_view name = "num_threads") const;

  /// The C++ object, null if `given` has another type. Throws TypeError if its __init__() was not
  /// called.
  template <class T>
  [[nodiscard]] T* instance(std::string_view name, nb::handle given) const {
    if (!nb::isinstance<T>(given)) return nullptr;
    if (!nb::inst_ready(given)) fail_as_type(name, " was not initialised: its __init__() was not called");
    return nb::inst_ptr<T>(given);
  }

  /// A message of the library, which begins with the name of this function.
  [[nodiscard]] std::string prefixed(const char* message_of_library) const;

  /// A copy in float32 of an array of 16 bits, which the library reads or writes in its place.
  const FloatCopy& keep(FloatCopy copy) const { return copies_.emplace_back(std::move(copy)); }

  /// Runs `f` without the GIL and in the library's floating-point state: fills the copies before,
  /// and rounds them to their arrays after. A message of the library that names another function is
  /// prefixed with the name of this one.
  template <class F>
  void compute(F f) const {
    plan([&] {
      for (const FloatCopy& copy : copies_) copy.widen(threads_);
      f();
      for (const FloatCopy& copy : copies_) copy.round(threads_);
    });
  }

  /// The same for an `f` that reads no elements: the copies are not filled.
  template <class F>
  void plan(F f) const {
    try {
      const GilRelease release;
      const headlane::internal::FloatingPointScope state;
      f();
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(prefixed(error.what()));
    } catch (const std::length_error& error) {
      throw std::length_error(prefixed(error.what()));
    }
  }

 private:
  [[noreturn]] void fail_as_value(std::string_view name, nb::handle given, std::string_view reason) const;

  const char* function_;
  mutable std::vector<FloatCopy> copies_{};
  mutable int threads_ = 0;
};

}  // namespace headlane::python
