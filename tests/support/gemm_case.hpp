// Inputs of a matrix product.
#pragma once

#include "support/data.hpp"

#include <headlane/dtype.hpp>

namespace headlane::test {

/// Those of a PackedMatrix.
inline constexpr DType all_types[] = {DType::float32, DType::bfloat16,     DType::float16,
                                      DType::int8,    DType::int8_group32, DType::int4_group32};

/// Normal numbers; the same for the same sizes and seed, whatever the layout.
struct GemmInputs {
  Tensor<2> a, b, c, residual;
  Tensor<1> bias;
  GemmInputs(Index m, Index n, Index k, const Layout& layout = {}, std::uint64_t seed = 0)
      : a({m, k}, layout), b({k, n}, layout), c({m, n}, layout), residual({m, n}, layout), bias({n}, layout) {
    Random random(static_cast<std::uint64_t>(m * 10007 + n * 101 + k) + (seed << 32));
    for (const auto* t : {&a, &b, &c, &residual}) fill_normal(t->view, random);
    fill_normal(bias.view, random);
  }
};

}  // namespace headlane::test
