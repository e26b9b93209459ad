// forward() of layers on tensors of bfloat16 and float16.
#pragma once

#include "core/check.hpp"
#include "core/convert.hpp"
#include "core/dispatch.hpp"

namespace headlane::internal {

/// y = f(x), both checked, by way of float32 copies: calls f(x, y) with these.
template <class F>
void forward_halves(const View<const std::uint16_t, 3>& x, const View<std::uint16_t, 3>& y, DType type, int num_threads,
                    const F& f) {
  if (is_empty(y)) return;
  const View<const std::uint16_t, 3> from = with_safe_strides(x);
  HalfCopies copies(active(), num_threads);
  copies.reserve(from);
  copies.reserve(AnyView<const std::uint16_t>(y));
  copies.allocate();
  const View<const float, 3> wide_x = as_view<3>(copies.add({from, type}));
  const View<float, 3> wide_y = as_view<3>(copies.room(AnyView<const std::uint16_t>(y)));
  f(wide_x, wide_y);
  copies.round(AnyView<const float>(wide_y), {y, type});
}

}  // namespace headlane::internal
