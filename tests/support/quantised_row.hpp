// A row of activations = int8, and its products, as gemm.hpp states them.
#pragma once

#include "support/data.hpp"

#include <headlane/view.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace headlane::test {

/// The integers of a row, their scale, and its outlier.
struct QuantisedRow {
  std::vector<long> q;
  float scale = 0, outlier = 0, largest = 0;  ///< largest of the others
  Index outlier_column = 0;

  explicit QuantisedRow(const View<const float, 1>& x) : q(static_cast<std::size_t>(x.shape[0]), 0) {
    for (Index p = 1; p < x.shape[0]; ++p)
      if (std::abs(x(p)) > std::abs(x(outlier_column))) outlier_column = p;
    bool finite = true;
    for (Index p = 0; p < x.shape[0]; ++p) {
      finite = finite && std::isfinite(x(p));
      if (p != outlier_column) largest = std::max(largest, std::abs(x(p)));
    }
    if (!finite) {
      scale = nan;
      return;
    }
    outlier = x(outlier_column);
    if (largest < 0x1p-100f) return;
    scale = largest / 127.0f;
    for (Index p = 0; p < x.shape[0]; ++p)
      if (p != outlier_column) q[static_cast<std::size_t>(p)] = std::lrint(x(p) * (127.0f / largest));
  }

  /// The product with a column of integers, q_b(p), and their scale.
  template <class Column>
  [[nodiscard]] float product(const Column& q_b, float scale_b) const {
    std::int64_t sum = 0;
    for (std::size_t p = 0; p < q.size(); ++p) sum += q[p] * q_b(static_cast<Index>(p));
    return std::fma(outlier, static_cast<float>(q_b(outlier_column)), static_cast<float>(sum) * scale) * scale_b;
  }
};

}  // namespace headlane::test
