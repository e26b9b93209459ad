// An array that a Python call was given: NumPy's by the buffer protocol, PyTorch's (and others') by DLPack's C interface, anything
// else by __dlpack__. Borrowed, never copied.
#pragma once

#include <headlane/view.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <optional>
#include <string>
#include <vector>

namespace headlane::python {

namespace nb = nanobind;

enum class Access { read, write };

/// Borrows from construction to destruction, both with the GIL held. Neither copied nor moved: Py_buffer must stay where it is.
class Array {
 public:
  /// Throws TypeError if `object` is no array, or one whose values are not all in the CPU's memory (masked, sparse, quantised,
  /// fake …); ValueError if it is to be written and read-only, or has too many axes; RuntimeError where PyTorch would record
  /// the call: for a gradient, a tangent of forward mode, a trace of torch.jit.
  Array(const char* function, const char* name, nb::handle object, Access access = Access::read);
  ~Array();
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  [[nodiscard]] const char* name() const { return name_; }
  [[nodiscard]] int rank() const { return rank_; }
  /// Size and stride along an axis; a negative axis counts from the last one.
  [[nodiscard]] Index size(int axis) const { return shape_[position(axis)]; }
  [[nodiscard]] Index stride(int axis) const { return strides_[position(axis)]; }

  [[nodiscard]] bool is_bool() const { return type_ == Type::boolean; }
  /// Throws TypeError, which says what to do, unless the elements are float32.
  void require_float() const;
  /// Likewise unless they are bool, int64, uint8.
  void require_bool() const;
  void require_int64() const;
  void require_uint8() const;

  [[nodiscard]] float* floats() const { return static_cast<float*>(data_); }
  [[nodiscard]] const bool* bools() const { return static_cast<const bool*>(data_); }
  [[nodiscard]] const std::uint8_t* bytes() const { return static_cast<const std::uint8_t*>(data_); }
  [[nodiscard]] const Index* integers() const { return static_cast<const Index*>(data_); }

  [[nodiscard]] std::vector<Index> shape() const { return {shape_.begin(), shape_.begin() + rank_}; }

 private:
  enum class Type { float32, boolean, uint8, int64, other };

  [[nodiscard]] std::size_t position(int axis) const {
    return static_cast<std::size_t>(axis < 0 ? axis + rank_ : axis);
  }
  [[noreturn]] void fail_as_type(const std::string& text) const;
  [[noreturn]] void fail_to_export() const;
  void set_rank(Index rank);
  void set_tensor(const nb::dlpack::dltensor& tensor);
  void from_buffer(Access access);
  bool from_exchange_interface();
  void from_dlpack(Access access);
  const char* function_;
  const char* name_;
  nb::handle object_;
  void* data_ = nullptr;
  int rank_ = 0;
  Type type_ = Type::other;
  std::array<Index, static_cast<std::size_t>(max_rank)> shape_{};
  std::array<Index, static_cast<std::size_t>(max_rank)> strides_{};
  Py_buffer buffer_{};                         // obj is null if it is not held
  std::optional<nb::ndarray<nb::ro>> tensor_;  // keeps what __dlpack__ gave
};

/// All of an array's axes; an array without axes is one element.
template <class T>
AnyView<T> any_view(const Array& x) {
  AnyView<T> view;
  view.data = x.floats();
  view.rank = std::max(1, x.rank());
  view.shape[0] = 1;
  for (int axis = 0; axis < x.rank(); ++axis) {
    view.shape[static_cast<std::size_t>(axis)] = x.size(axis);
    view.strides[static_cast<std::size_t>(axis)] = x.stride(axis);
  }
  return view;
}

/// Throws ValueError if two elements of `out` are the same, or one is an element of an input (null: none). The library checks this
/// for what one call is given; here it is for arrays that several calls work through.
void require_apart(const char* function, const Array& out, std::initializer_list<const Array*> inputs);

/// A new dense array of the kind that `like` is: the result of a call. What cannot be written into (JAX), or is unknown, is
/// computed in a NumPy array, which finished() hands over.
nb::object new_array(nb::handle like, const Index* shape, int rank);

/// A new NumPy array with these elements.
nb::object array_of(const std::vector<float>& elements, const std::vector<Index>& shape);

/// Tells PyTorch that a tensor was written to, so that a backward pass that needs its old values fails instead of being wrong.
void announce_write(nb::handle object);

/// What the caller is given for a result made by new_array().
nb::object finished(nb::handle like, nb::object result);

}  // namespace headlane::python
