// What gemm_check.cpp hands to gemm.cpp.
#pragma once

#include <headlane/gemm.hpp>

namespace headlane {

namespace kernels {
struct KernelTable;
}

/// A product whose arguments are checked; c is not empty.
struct Product {
  View<const float, 2> a, b;  // b: its shape only if it is packed
  const float* packed;        // null: not packed
  View<float, 2> c;
  const GemmOptions& options;
  const kernels::KernelTable& kernel;
  int threads;
};

void run_gemm(const Product& product);

/// Packs b as PackedMatrix::data() says; round_up(columns, 32) · rows floats.
void pack_right(const View<const float, 2>& b, const kernels::KernelTable& kernel, int threads, float* packed);

}  // namespace headlane
