// The computation of FeedForward, for layers that contain one.
#pragma once

#include <headlane/feed_forward.hpp>
#include <headlane/view.hpp>

namespace headlane::internal {

/// y = layer(x) + residual; the residual may have null data. Arguments are checked.
void feed_forward(const FeedForward& layer, const View<const float, 3>& x, const View<float, 3>& y,
                  const View<const float, 3>& residual, int num_threads);

}  // namespace headlane::internal
