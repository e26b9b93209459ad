#include <headlane/disjoint.hpp>

#include "core/check.hpp"

namespace headlane {

void require_disjoint(const char* function, const NamedView& output, std::span<const NamedView> inputs) {
  const internal::Caller caller(function);
  const internal::Operand written = caller.operand(output.name, output.view);
  internal::check_output(written);
  for (const NamedView& input : inputs)
    if (input.view) internal::check_no_overlap(written, caller.operand(input.name, input.view));
}

}  // namespace headlane
