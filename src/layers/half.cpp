#include "layers/half.hpp"

#include "core/dispatch.hpp"

namespace headlane::internal {

WideRows::WideRows(const HalfRows& rows, int num_threads)
    : copies_(active(), num_threads), to_(AnyView<std::uint16_t>(rows.y), rows.type) {
  const View<const std::uint16_t, 3> of_y = rows.y;
  for (const auto* tensor : {&rows.x, &rows.memory, &of_y}) copies_.reserve(*tensor);
  copies_.allocate();
  x = as_view<3>(copies_.add({rows.x, rows.type}));
  memory = as_view<3>(copies_.add({rows.memory, rows.type}));
  y = as_view<3>(copies_.room(of_y));
}

void WideRows::round() const { copies_.round(AnyView<const float>(y), to_); }

}  // namespace headlane::internal
