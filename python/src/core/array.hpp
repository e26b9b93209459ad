// An array argument of a Python call: NumPy arrays through the buffer protocol, PyTorch tensors
// (and others) through DLPack's C interface, anything else through __dlpack__. Borrowed; what has
// bfloat16 or float16 is read and written through a copy in float32, unless a function of the
// library takes it as it is.
#pragma once

#include "core/call.hpp"

#include <headlane/floating_view.hpp>

#include <array>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <optional>
#include <string>
#include <vector>

namespace headlane::python {

namespace nb = nanobind;

/// update: read and written.
enum class Access { read, write, update };

/// Types of elements. The library computes with float32, to which the other two are converted; it
/// reads masks (bool, bits in uint8), int64, and int8 of stored weights.
enum class Element { float32, bfloat16, float16, boolean, uint8, int8, int64, other };

/// Says of a constructor that the elements may be of float32, bfloat16 or float16.
struct Floats {};

/// What a new array is like: its kind, and the type of its elements.
struct Like {
  nb::handle object = nb::none();  // None: NumPy
  Element element = Element::float32;
};

/// Borrows the array from construction to destruction; both need the GIL. Neither copied nor moved:
/// a Py_buffer must stay at its address.
class Array {
 public:
  /// Throws TypeError if `object` is no array, or one whose values are not all in CPU memory
  /// (masked, sparse, quantised, fake …); ValueError if it is to be written and is read-only, or
  /// has too many axes; RuntimeError where PyTorch would record the call: for a gradient, a tangent
  /// of forward mode, a trace of torch.jit.
  /// The call must outlive the array.
  Array(const Call& call, const char* name, nb::handle object, Access access = Access::read);
  /// Without a copy: the call reads what it is, or calls to_float32().
  Array(const Call& call, const char* name, nb::handle object, Floats, Access access = Access::read);
  /// The same, and require_element(wanted).
  Array(const Call& call, const char* name, nb::handle object, Element wanted, Access access = Access::read);
  ~Array();
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  /// The call that the array is an argument of, and the argument's name.
  [[nodiscard]] const Call& call() const { return *call_; }
  [[nodiscard]] const char* name() const { return name_; }
  /// Throws ValueError, "function: name" and the parts, unless `condition`.
  template <class... Parts>
  void require(bool condition, const Parts&... parts) const {
    call_->require(condition, name_, parts...);
  }

  [[nodiscard]] int rank() const { return rank_; }
  /// Size and stride along an axis; a negative axis counts from the last one.
  [[nodiscard]] Index size(int axis) const { return shape_[position(axis)]; }
  [[nodiscard]] Index stride(int axis) const { return strides_[position(axis)]; }
  [[nodiscard]] std::vector<Index> shape() const { return {shape_.begin(), shape_.begin() + rank_}; }

  [[nodiscard]] Element element() const { return element_; }
  /// The type of the elements at data(), of an array of float32, bfloat16 or float16: float32 for a
  /// copy.
  [[nodiscard]] DType type() const {
    if (is_copied_) return DType::float32;
    return element_ == Element::bfloat16  ? DType::bfloat16
           : element_ == Element::float16 ? DType::float16
                                          : DType::float32;
  }
  /// For an array of this kind and type.
  [[nodiscard]] Like like() const { return {object_, element_}; }
  /// Throws TypeError unless the elements have this type; the message says how to convert them. For
  /// float32 they may have bfloat16 or float16: then data and strides are from here on those of a
  /// copy in float32, which has values while Call::compute() runs. Throws MemoryError if there is
  /// none for it.
  void require_element(Element wanted, Access access = Access::read);
  /// Of Floats: require_element(Element::float32).
  void to_float32() { require_element(Element::float32, access_); }

  /// An output of 16 bits, without its copy. Of other arrays, a view without data.
  [[nodiscard]] const AnyFloatingView& outline() const { return outline_; }

  /// The first element. Never null: PyTorch's empty tensors have no address, but a view without
  /// data would mean to the library that the argument is absent.
  template <class T>
  [[nodiscard]] T* data() const {
    return static_cast<T*>(data_);
  }

 private:
  [[nodiscard]] std::size_t position(int axis) const {
    return static_cast<std::size_t>(axis < 0 ? axis + rank_ : axis);
  }
  [[noreturn]] void fail_as_type(const std::string& text) const;
  [[noreturn]] void fail_to_export() const;
  void set_rank(Index rank);
  void set_outline(Access access);
  void set_copy(Access access);
  void set_tensor(const nb::dlpack::dltensor& tensor);
  void get_buffer();
  void from_buffer(Access access);
  bool from_exchange_interface();
  void from_dlpack(Access access);
  const Call* call_;
  const char* name_;
  nb::object object_;  // keeps the memory
  void* data_ = nullptr;
  int rank_ = 0;
  Element element_ = Element::other;
  Access access_ = Access::read;  // of Floats
  bool is_copied_ = false;        // to float32
  std::array<Index, static_cast<std::size_t>(max_rank)> shape_{};
  std::array<Index, static_cast<std::size_t>(max_rank)> strides_{};
  AnyFloatingView outline_;
  Py_buffer buffer_{};                         // obj is null if none is held
  std::optional<nb::ndarray<nb::ro>> tensor_;  // owns what __dlpack__ returned
};

/// In a message, an array is its shape.
inline std::string shown(const Array& array) { return shown(array.shape()); }

/// An array that may be absent: None. `wanted`: an Element, or Floats.
template <class Wanted>
std::optional<Array> optional_array(const Call& call, const char* name, nb::handle given, Wanted wanted) {
  if (given.is_none()) return {};
  return std::optional<Array>(std::in_place, call, name, given, wanted);
}
/// Integers of any type, in an array or list, converted to int64; absent if None.
std::optional<Array> optional_integers(const Call& call, const char* name, nb::handle given);

/// Null if it is absent.
inline const Array* pointer_to(const std::optional<Array>& array) { return array ? &*array : nullptr; }

/// A new dense array for the result of a call. For a kind that cannot be written (JAX), or an
/// unknown one, a NumPy array, which finished() converts; for bfloat16, which NumPy does not have,
/// an object with __dlpack__.
nb::object new_array(const Like& like, const Index* shape, int rank);

/// A new NumPy array with these elements.
nb::object array_of(const std::vector<float>& elements, const std::vector<Index>& shape);

/// Tells PyTorch that a tensor was written, so that a backward pass that needs its old values fails
/// instead of being wrong.
void announce_write(nb::handle object);

/// The object to return for a result of new_array().
nb::object finished(nb::handle like, nb::object result);

}  // namespace headlane::python
