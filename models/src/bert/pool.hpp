// Rows of hidden states as one embedding.
#pragma once

#include <headlane/models/bert.hpp>
#include <headlane/view.hpp>

namespace headlane::models::internal {

/// y = the first elements of x, divided by the L2 norm of the first `counted` elements of x;
/// counted 0: not divided.
void copy_row(const View<const float, 1>& x, const View<float, 1>& y, Index counted);

/// y = the rows of x pooled. They are those of a sentence after its first `before` tokens.
void pool(Pooling pooling, const View<const float, 2>& x, Index before, const View<float, 1>& y);

}  // namespace headlane::models::internal
