#include "core/call.hpp"

#include "core/errors.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

namespace headlane::python {
namespace {

/// ascii() of the object if that is short, else its type.
std::string short_repr(nb::handle given) {
  constexpr Py_ssize_t max_length = 100;
  const nb::object text = nb::steal(PyObject_ASCII(given.ptr()));
  const nb::object bytes = nb::steal(text.is_valid() ? PyUnicode_AsUTF8String(text.ptr()) : nullptr);
  if (!bytes.is_valid()) clear_error({PyExc_Exception});
  else if (PyBytes_Size(bytes.ptr()) <= max_length) return PyBytes_AsString(bytes.ptr());
  return std::string("of type ") + nb::type_name(given.type()).c_str();
}

/// The type is named bool in NumPy 2 and bool_ in NumPy 1, with or without its module.
bool is_numpy_bool(nb::handle given) {
  const std::string type = nb::type_name(given.type()).c_str(), name = type.substr(type.rfind('.') + 1);
  return name == "bool" || name == "bool_";
}

/// A message with the names that arguments have in Python, not in the library.
std::string with_python_names(std::string text, std::string_view function) {
  using Names = std::pair<std::string_view, std::string_view>;
  constexpr Names outputs[] = {{" y ", " out "}, {" c ", " out "}};
  constexpr Names inputs[] = {{" q ", " query "}, {" k ", " key "}, {" v ", " value "}};
  const auto rename = [&](const Names& names) {
    const auto& [from, to] = names;
    for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + 1))
      text.replace(at, from.size(), to);
  };
  std::ranges::for_each(outputs, rename);
  const bool has_short_names = function == "linear_attention";
  if (!has_short_names && function.find("attention") != std::string_view::npos) std::ranges::for_each(inputs, rename);
  return text;
}

}  // namespace

std::string with_dots(std::string message) {
  if (const auto at = message.find("::"); at != std::string::npos && at == message.find(':')) {
    message[at] = '.';
    message.erase(at + 1, 1);
  }
  return message;
}

std::string Call::prefixed(const char* message_of_library) const {
  const std::string text = with_python_names(with_dots(message_of_library), function_);
  return text.starts_with(message()) ? text : message(text);
}

void Call::fail_as_value(std::string_view name, nb::handle given, std::string_view reason) const {
  throw std::invalid_argument(message(name, " is ", short_repr(given), reason));
}

void Call::refuse_value(std::string_view name, nb::handle given, std::string_view wanted) const {
  fail_as_type(name, " is ", short_repr(given), "; wanted: ", wanted);
}

void Call::refuse_type(std::string_view name, nb::handle given, std::string_view wanted) const {
  fail_as_type(name, " has type ", nb::type_name(given.type()).c_str(), "; wanted: ", wanted);
}

Index Call::integer(std::string_view name, nb::handle given) const {
  const nb::object number = nb::steal(PyNumber_Index(given.ptr()));
  if (!number.is_valid()) {
    clear_error({PyExc_TypeError});
    refuse_value(name, given, "an integer");
  }
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow != 0) fail_as_value(name, given, ", which has more than 64 bits");
  return static_cast<Index>(value);
}

Index Call::integer(std::string_view name, std::size_t index, nb::handle given) const {
  if (PyLong_Check(given.ptr()) != 0) {
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(given.ptr(), &overflow);
    if (overflow == 0) return static_cast<Index>(value);
  }
  return integer(joined(name, "[", index, "]"), given);
}

bool Call::flag(std::string_view name, nb::handle given) const {
  if (PyBool_Check(given.ptr())) return given.ptr() == Py_True;
  if (!is_numpy_bool(given)) refuse_value(name, given, "True or False");
  return PyObject_IsTrue(given.ptr()) == 1;
}

double Call::float64(std::string_view name, nb::handle given) const {
  const double value = PyFloat_AsDouble(given.ptr());
  if (value != -1 || PyErr_Occurred() == nullptr) return value;
  const bool too_large = PyErr_ExceptionMatches(PyExc_OverflowError) != 0;
  clear_error({PyExc_TypeError, PyExc_OverflowError});
  if (too_large) fail_as_value(name, given, ", which is beyond floating-point numbers");
  refuse_value(name, given, "a number");
}

float Call::float32(std::string_view name, nb::handle given) const {
  const double value = float64(name, given);
  if (std::isfinite(value) && std::abs(value) > static_cast<double>(std::numeric_limits<float>::max()))
    fail_as_value(name, given, ", which is beyond float32");
  const headlane::internal::FloatingPointScope state;  // its rounding
  return static_cast<float>(value);
}

std::string Call::text(std::string_view name, nb::handle given) const {
  if (!PyUnicode_Check(given.ptr())) refuse_value(name, given, "a str");
  const nb::object bytes = nb::steal(PyUnicode_AsUTF8String(given.ptr()));
  if (!bytes.is_valid()) {
    PyErr_Clear();
    fail_as_value(name, given, ", which is no Unicode text: it has a surrogate");
  }
  return {PyBytes_AsString(bytes.ptr()), static_cast<std::size_t>(PyBytes_Size(bytes.ptr()))};
}

int Call::threads(nb::handle given, std::string_view name) const {
  if (given.is_none()) return 0;
  const Index value = integer(name, given);
  if (value < 0) fail_as_value(name, given, ", the minimum is 0");
  if (value > std::numeric_limits<int>::max())
    fail_as_value(name, given, joined(", the most is ", std::numeric_limits<int>::max()));
  return threads_ = static_cast<int>(value);
}

std::vector<Index> Call::integers(std::string_view name, nb::handle given) const {
  if (const auto several = several_integers(name, given)) return *several;
  return {integer(name, given)};
}

std::optional<std::vector<Index>> Call::several_integers(std::string_view name, nb::handle given) const {
  if (PyLong_Check(given.ptr()) != 0) return {};
  const nb::object elements = elements_of(given);
  if (!elements.is_valid()) return {};
  std::vector<Index> numbers;
  for (const nb::handle element : nb::borrow<nb::list>(elements))
    numbers.push_back(integer(name, numbers.size(), element));
  return numbers;
}

}  // namespace headlane::python
