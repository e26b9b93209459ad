// Products of integers: the kernel for a type of weights.
#pragma once

#include "kernels/gemm/int4_few_rows.hpp"

namespace headlane::internal::kernels {
namespace {

template <class Arch, bool Extended>
void gemm_integers(const GemmBlock& block) noexcept {
  using Unit = IntegerUnit<Arch, Extended>;
  if (block.b_type == DType::int8) return gemm_int8<Arch, Extended>(block);
  if constexpr (takes_nibbles<Unit>)
    if (block.b_type == DType::int4_group32 && block.m <= few_rows<Unit>) return gemm_few_groups<Arch, Unit>(block);
  gemm_groups<Arch, Extended>(block);
}

}  // namespace
}  // namespace headlane::internal::kernels
