#include <headlane/disjoint.hpp>

#include "core/check.hpp"

namespace headlane {

void require_disjoint(const char* function, const NamedView& output, std::span<const NamedView> inputs) {
  const auto operand = [&](const NamedView& view) {
    return internal::Operand{function,          view.name,           view.data,        view.rank,
                             view.shape.data(), view.strides.data(), view.element_size};
  };
  const internal::Operand written = operand(output);
  internal::check_output(written);
  for (const NamedView& input : inputs) {
    if (input.data == nullptr) continue;
    const internal::Operand read = operand(input);
    internal::check_operand(read);
    internal::check_no_overlap(written, read);
  }
}

}  // namespace headlane
