// Checks that gemm, gemm_batch and gemm_gated share.
#pragma once

#include "core/check.hpp"
#include "core/round.hpp"
#include "gemm/problem.hpp"

namespace headlane::internal {

/// a · b → c, each as it is and fitting to the other ones in its last two axes; no overlap. b packed: only its shape is looked at.
void check_product(const Operand& a, const Operand& b, bool packed, const Operand& c);

/// What c ends with. Null data: not given.
void check_finish(const Operand& c, const Operand& bias, Activation activation, const Operand& residual);

/// The arguments of a call as a product.
Product product_of(const View<const float, 2>& a, const View<const float, 2>& b, const PackedMatrix* packed,
                   const View<float, 2>& c, const GemmOptions& options);

/// A matrix that is only a shape: the packed operand in messages.
inline View<const float, 2> shape_of(const PackedMatrix& b) { return {b.data(), {b.rows(), b.columns()}}; }

/// Whether product_of turns it: cᵀ = bᵀ·aᵀ, the same sums of products. Vectors run along neighbours in a row of c.
bool is_turned(const View<float, 2>& c, const PackedMatrix* packed, const GemmOptions& options);

inline PackedColumns packed_columns(const PackedMatrix& b) {
  return {b.data(), round_up(b.columns(), kernels::panel_columns), 0};
}

/// c = a · columns first … first + n-1 of b, n the columns of c, with what the options say. Arguments are checked; first is a multiple of 32.
void multiply(const View<const float, 2>& a, const PackedMatrix& b, Index first, const View<float, 2>& c,
              const GemmOptions& options);

}  // namespace headlane::internal
