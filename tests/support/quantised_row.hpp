// A row of activations = int8, and its products, as gemm.hpp states them.
#pragma once

#include "support/data.hpp"

#include <headlane/view.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace headlane::test {

/// The integers of a row, their scale and centre, and its outlier.
struct QuantisedRow {
  std::vector<long> q;
  float scale = 0, centre = 0, distance = 0;  ///< the largest distance of the others from the centre
  float outlier = 0;                          ///< less the centre
  Index outlier_column = 0;

  explicit QuantisedRow(const View<const float, 1>& x) : q(static_cast<std::size_t>(x.shape[0]), 0) {
    float high = -infinity, low = infinity;
    bool finite = true;
    for (Index p = 0; p < x.shape[0]; ++p) {
      finite = finite && std::isfinite(x(p));
      high = std::max(high, x(p));
      low = std::min(low, x(p));
    }
    if (!finite) {
      scale = nan;
      return;
    }
    const float apart = high >= -low ? high : low;
    while (x(outlier_column) != apart) ++outlier_column;
    outlier = x(outlier_column);
    if (x.shape[0] == 1) return;
    high = -infinity, low = infinity;
    for (Index p = 0; p < x.shape[0]; ++p)
      if (p != outlier_column) high = std::max(high, x(p)), low = std::min(low, x(p));
    centre = 0.5f * high + 0.5f * low;
    outlier -= centre;
    distance = std::max(high - centre, centre - low);
    if (distance < 0x1p-100f) return;
    scale = distance / 127.0f;
    for (Index p = 0; p < x.shape[0]; ++p)
      if (p != outlier_column) q[static_cast<std::size_t>(p)] = std::lrint((x(p) - centre) * (127.0f / distance));
  }

  /// The product with a column of integers, q_b(p), and their scale.
  template <class Column>
  [[nodiscard]] float product(const Column& q_b, float scale_b) const {
    std::int64_t sum = 0, sum_b = 0;
    for (std::size_t p = 0; p < q.size(); ++p) {
      sum += q[p] * q_b(static_cast<Index>(p));
      sum_b += q_b(static_cast<Index>(p));
    }
    const float others = std::fma(centre, static_cast<float>(sum_b), static_cast<float>(sum) * scale);
    return std::fma(outlier, static_cast<float>(q_b(outlier_column)), others) * scale_b;
  }
};

}  // namespace headlane::test
