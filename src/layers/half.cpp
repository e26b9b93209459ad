#include "layers/half.hpp"

#include "core/dispatch.hpp"

namespace headlane::internal {

WideRows::WideRows(const HalfRows& rows, int num_threads)
    : copies_(active(), num_threads), to_(AnyView<std::uint16_t>(rows.y), rows.type) {
  const View<const std::uint16_t, 3> of_y = rows.y;
  for (const auto* tensor : {&rows.x, &rows.memory, &of_y})
    if (!is_empty(*tensor)) copies_.reserve(*tensor);
  copies_.allocate();
  const auto copy_of = [&](const View<const std::uint16_t, 3>& tensor) {
    if (is_empty(tensor)) return View<float, 3>(nullptr, tensor.shape, {});
    return as_view<3>(copies_.add({tensor, rows.type}));
  };
  x = copy_of(rows.x);
  memory = copy_of(rows.memory);
  y = is_empty(of_y) ? View<float, 3>(nullptr, of_y.shape, {}) : as_view<3>(copies_.room(of_y));
}

void WideRows::round() const {
  if (!is_empty(y)) copies_.round(AnyView<const float>(y), to_);
}

}  // namespace headlane::internal
