// Shared by functions that carry a state from call to call.
#pragma once

#include "core/result.hpp"

namespace headlane::python {

/// The caller's state, which is read and written in place; it may be absent: None.
class State {
 public:
  /// Throws ValueError unless it has `rank` axes; `wanted` names them for the message.
  State(const Call& call, nb::handle given, int rank, const char* wanted) : object_(given) {
    if (given.is_none()) return;
    array_.emplace(call, "state", given, Floats(), Access::update);
    array_->require(array_->rank() == rank, " has shape ", *array_, ", wanted ", wanted);
  }

  /// Throws ValueError if the caller's `out` overlaps it; then makes the copy of a state of 16
  /// bits, with which the library would see no overlap.
  void finish(const Result& result) {
    if (!array_) return;
    result.require_apart({pointer_to(array_)});
    array_->to_float32();
  }

  /// A view without data if it is absent.
  template <int Rank>
  [[nodiscard]] View<float, Rank> view() const {
    return array_ ? view_of<float, Rank>(*array_) : View<float, Rank>{};
  }

  void announce() const {
    if (array_) announce_write(object_);
  }

 private:
  nb::handle object_;
  std::optional<Array> array_;
};

}  // namespace headlane::python
