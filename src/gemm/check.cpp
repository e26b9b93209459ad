// Checks of GEMM's arguments, and the product that they describe.
#include "gemm/check.hpp"

#include <charconv>
#include <limits>

namespace headlane::internal {

void check_product(const Operand& a, const Operand& b, bool packed, const Operand& c) {
  check_operand(a);
  check_operand(b);
  check_output(c);
  const int row = c.rank - 2, column = c.rank - 1, row_of_b = b.rank - 2, column_of_b = b.rank - 1;
  check_same(a, column, "columns", b, row_of_b, "rows");
  check_same(c, row, "rows", a, row, "rows");
  check_same(c, column, "columns", b, column_of_b, "columns");
  check_no_overlap(c, a);
  if (!packed) check_no_overlap(c, b);
}

namespace {

constexpr Index max_elements = std::numeric_limits<Index>::max() / static_cast<Index>(sizeof(float)) / 2;

}  // namespace

void check_type(Caller caller, DType type) {
  caller.require(type <= DType::int4_group32, "type is ", static_cast<Index>(type),
                 ", which is none of float32 … int4_group32");
}

bool is_packable(Index rows, Index columns) {
  if (rows == 0 || columns == 0) return true;
  Index size = 0;
  return columns <= max_elements && !__builtin_mul_overflow(rows, round_up(columns, kernels::panel_columns), &size) &&
         size <= max_elements;
}

void check_packable(const Operand& b) {
  check_operand(b);
  b.require(is_packable(b.shape[0], b.shape[1]), " of shape ", b, " does not fit into memory: at most ", max_elements,
            " elements can be addressed, columns in whole panels of ", kernels::panel_columns);
}

std::size_t bytes_of_matrix(Index rows, Index columns, DType type) {
  if (rows == 0 || columns == 0) return 0;
  const Index width = round_up(columns, kernels::panel_columns);
  const Index scales = has_scales(type) ? width * static_cast<Index>(sizeof(float)) : 0;
  return static_cast<std::size_t>(bytes_of_panels(rows, width, type) + scales);
}

std::string text_of(float x) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, x).ptr};
}

void check_activation(Caller caller, Activation activation) {
  caller.require(activation <= Activation::erf, "activation is ", static_cast<Index>(activation),
                 ", which is none of none … erf");
}

void check_epilogue(const Operand& c, const Operand& bias, Activation activation, const Operand& residual) {
  const int row = c.rank - 2, column = c.rank - 1;
  check_activation(c.caller, activation);
  if (bias) {
    check_operand(bias);
    check_same(bias, bias.rank - 1, "elements", c, column, "columns");
    check_no_overlap(c, bias);
  }
  if (residual) {
    check_operand(residual);
    check_same(residual, row, "rows", c, row, "rows");
    check_same(residual, column, "columns", c, column, "columns");
    check_no_overlap(c, residual);
  }
}

void check_activations(const Operand& b, const PackedMatrix* packed, DType activations) {
  constexpr Index max_rows = 132000;  // 127 · 127 · 132000 < 2^31
  const bool is_int8 = activations == DType::int8;
  b.caller.require(activations == DType::float32 || activations == DType::bfloat16 || is_int8, "activations is ",
                   static_cast<Index>(activations), ", it may be float32, bfloat16 or int8");
  if (activations == DType::float32) return;
  const DType type = packed == nullptr ? DType::float32 : packed->type();
  b.require(type == activations || (is_int8 && has_groups(type)), " is ",
            packed != nullptr ? "a PackedMatrix of " : "not packed",
            packed != nullptr ? name_of(type) : std::string_view(), "; with activations ", name_of(activations),
            " it must be a PackedMatrix of ", is_int8 ? "int8, int8_group32 or int4_group32" : name_of(activations));
  b.require(type != DType::int8 || packed->rows() <= max_rows, " has ", packed->rows(),
            " rows, with activations int8 at most ", max_rows);
}

void check_gemm(const Operand& a, const Operand& b, const PackedMatrix* packed, const Operand& c, const Operand& bias,
                const Operand& residual, Activation activation, DType activations) {
  check_product(a, b, packed != nullptr, c);
  check_activations(b, packed, activations);
  check_epilogue(c, bias, activation, residual);
}

void check_gemm_by(const Operand& a, const Operand& b, const PackedMatrix* packed, const Operand& c,
                   const Operand& bias, const Operand& residual, Activation activation, DType activations) {
  if (packed == nullptr) return check_gemm(a, b, nullptr, c, bias, residual, activation, activations);
  const View<const float, 2> shape = shape_of(*packed);
  check_gemm(a, b.caller.operand(b.name, shape), packed, c, bias, residual, activation, activations);
}

bool is_transposed(const View<float, 2>& c, const PackedMatrix* packed, const GemmOptions& options) {
  if (packed != nullptr || options.bias) return false;  // both refer to columns
  return c.strides[1] != 1 && c.strides[0] == 1;
}

Product product_of(const View<const float, 2>& a, const View<const float, 2>& b, const PackedMatrix* packed,
                   const View<float, 2>& c, const GemmOptions& options) {
  const View<const float, 1>& bias = options.bias;
  const View<const float, 2> residual = options.residual.of<float>();
  Product p{.a = with_safe_strides(a),
            .b = with_safe_strides(b),
            .packed = packed != nullptr ? packed_columns(*packed) : PackedColumns(),
            .c = c,
            .alpha = options.alpha,
            .beta = options.beta,
            .activations = options.activations,
            .epilogue = {.bias = bias.data,
                         .bias_step = bias.strides[0],
                         .activation = options.activation,
                         .factor = nullptr,
                         .factor_row_step = 0,
                         .residual = residual.data,
                         .row_step = residual.strides[0],
                         .column_step = residual.strides[1]}};
  if (is_transposed(c, packed, options)) p = transposed(p);
  return p;
}

}  // namespace headlane::internal
