// Checks shared by gemm, gemm_batch and gemm_gated.
#pragma once

#include "core/check.hpp"
#include "core/round.hpp"
#include "gemm/problem.hpp"

#include <cstddef>
#include <string>

namespace headlane::internal {

/// Checks a · b → c: each operand, that the last two axes fit, and that c overlaps neither a nor b.
/// If b is packed, only its shape is checked.
void check_product(const Operand& a, const Operand& b, bool packed, const Operand& c);

/// Checks that there is such an activation.
void check_activation(Caller caller, Activation activation);

/// Checks the epilogue of c. Null data: not given.
void check_epilogue(const Operand& c, const Operand& bias, Activation activation, const Operand& residual);

/// Checks that b is what products with these activations need.
void check_activations(const Operand& b, const PackedMatrix* packed, DType activations);

/// All of these: a · b → c and its epilogue. b: of a packed matrix, its shape_of().
void check_gemm(const Operand& a, const Operand& b, const PackedMatrix* packed, const Operand& c, const Operand& bias,
                const Operand& residual, Activation activation, DType activations);
/// The same; the shape of a packed matrix takes the place of b.
void check_gemm_by(const Operand& a, const Operand& b, const PackedMatrix* packed, const Operand& c,
                   const Operand& bias, const Operand& residual, Activation activation, DType activations);

/// The product that a call describes, whose residual is of float32.
Product product_of(const View<const float, 2>& a, const View<const float, 2>& b, const PackedMatrix* packed,
                   const View<float, 2>& c, const GemmOptions& options);

/// The shape of a packed operand, for checks and messages. Its data may be of another type.
inline View<const float, 2> shape_of(const PackedMatrix& b) {
  return {static_cast<const float*>(b.data()), {b.rows(), b.columns()}};
}

/// True if product_of transposes, so that vectors run along rows of c of contiguous elements.
bool is_transposed(const View<float, 2>& c, const PackedMatrix* packed, const GemmOptions& options);

/// The type is one of float32 … int4_group32.
void check_type(Caller caller, DType type);

/// True if a packed matrix of this shape can be addressed.
bool is_packable(Index rows, Index columns);
/// check_operand, and is_packable.
void check_packable(const Operand& b);

/// The memory of a matrix without the sums of its columns: elements, and scales if it has any; 0 if
/// it is empty.
std::size_t bytes_of_matrix(Index rows, Index columns, DType type);

/// In a message.
std::string text_of(float x);

inline PackedColumns packed_columns(const PackedMatrix& b) {
  const Index width = round_up(b.columns(), kernels::panel_columns);
  const void* scales =
      has_scales(b.type()) ? bytes_from(b.data(), bytes_of_panels(b.rows(), width, b.type())) : nullptr;
  const void* sums = has_sums(b.type()) ? bytes_from(b.data(), static_cast<Index>(b.bytes())) : nullptr;
  return {b.data(), b.type(), b.rows(), static_cast<const float*>(scales), static_cast<const float*>(sums), width, 0};
}

/// gemm() for callers that have a CallScope: by `packed` of the shape of b, unless that is null.
void gemm_in_scope(const View<const float, 2>& a, const View<const float, 2>& b, const PackedMatrix* packed,
                   const View<float, 2>& c, const GemmOptions& options);

/// c = a · columns first … first + n - 1 of b, where c has n columns, with the options of gemm, the
/// residual in float32. The arguments are checked, within a CallScope; first is a multiple of 32.
void multiply(const View<const float, 2>& a, const PackedMatrix& b, Index first, const View<float, 2>& c,
              const GemmOptions& options);

}  // namespace headlane::internal
