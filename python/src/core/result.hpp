// The array that a call writes.
#pragma once

#include "core/views.hpp"

#include <headlane/disjoint.hpp>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <vector>

namespace headlane::python {

/// The caller's `out`, which must have this shape, or a new array like `like`.
class Result {
 public:
  /// `access`: update if its old values are read.
  Result(const Call& call, const Like& like, nb::handle out, const std::vector<Index>& shape,
         Access access = Access::write)
      : Result(call, like, out, shape, Floats(), access) {
    array_->to_float32();
  }
  /// Without a copy of 16 bits.
  Result(const Call& call, const Like& like, nb::handle out, const std::vector<Index>& shape, Floats floats,
         Access access = Access::write)
      : like_(like.object), given_(!out.is_none()) {
    object_ = given_ ? nb::borrow(out) : new_array(like, shape.data(), static_cast<int>(shape.size()));
    array_.emplace(call, "out", object_, floats, access);
    bool same = array_->rank() == static_cast<int>(shape.size());
    for (std::size_t axis = 0; same && axis < shape.size(); ++axis)
      same = array_->size(static_cast<int>(axis)) == shape[axis];
    array_->require(same, " has shape ", *array_, ", the result ", shape);
  }

  [[nodiscard]] const Array& array() const { return *array_; }
  void to_float32() { array_->to_float32(); }

  /// Throws ValueError if two elements of the caller's `out` are the same, or one is an element of
  /// an input (null: absent). The library checks this within one call; this is for several.
  void require_apart(const std::vector<const Array*>& inputs) const {
    if (!given_) return;
    std::vector<NamedView> views;
    for (const Array* input : inputs)
      if (input != nullptr) views.emplace_back(input->name(), typed(any_view<const float>(*input), *input));
    require_disjoint(array_->call().function(), {"out", typed(any_view<const float>(*array_), *array_)}, views);
  }

  /// The same for another output of the call, where the library sees copies of both.
  void require_apart(const Result& other, const char* name) const {
    if (array_->outline() && other.array_->outline())
      require_disjoint(array_->call().function(), {"out", array_->outline()}, {{{name, other.array_->outline()}}});
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

/// Computes f(T()), where T is the type of all arrays; float if they differ, by way of copies.
template <class F>
void compute_in_own_type(const Call& call, std::initializer_list<Array*> from, Result& to, const F& f) {
  const auto all_are = [&](Element element) {
    return to.array().element() == element &&
           std::all_of(from.begin(), from.end(), [&](const Array* array) { return array->element() == element; });
  };
  if (all_are(Element::bfloat16)) return call.compute([&] { f(bfloat16()); });
  if (all_are(Element::float16)) return call.compute([&] { f(float16()); });
  for (Array* array : from) array->to_float32();
  to.to_float32();
  call.compute([&] { f(float()); });
}

}  // namespace headlane::python
