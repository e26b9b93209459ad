// Arguments of the GEMM kernels.
#pragma once

#include "kernels/args/sizes.hpp"

#include <headlane/activation_kind.hpp>
#include <headlane/dtype.hpp>
#include <headlane/index.hpp>

#include <cstdint>

namespace headlane::internal::kernels {

/// A matrix to copy from: rows × columns with any strides.
struct Source {
  const float* data;
  Index rows, columns;
  Index row_step, column_step;
};

/// Columns that are quantised at a time: rows end with zeros up to a multiple of them.
inline constexpr Index quantised_columns = 64;

/// For magnitudes x from here on, 127 / x and x / 127 are normal numbers. If no element of a row,
/// but its outlier, is as far from the centre, they count as the centre.
inline constexpr float least_distance = 0x1p-100f;

/// Rows as 8-bit integers: x ≈ q · scale + centre, with a scale and a centre for each row, but for
/// its outlier, which is kept in float and whose q is 0.
struct QuantisedRows {
  std::int8_t* numbers;    ///< q, or q + 128 (IntegerUnit)
  Index row_step;          ///< in bytes
  Index odd;               ///< where pairs of 16-bit integers of odd columns begin (IntegerUnit)
  float* scales;           ///< of each row
  float* centres;          ///< of each row
  float* outliers;         ///< of each row, less its centre
  Index* outlier_columns;  ///< where they were
  Index first;             ///< the column of the rows that `numbers` begin with
};

/// The epilogue of a product, applied after its last block: c = activation(c + bias) · factor +
/// residual. Null: not given.
struct GemmEpilogue {
  const float* bias;  ///< element j at bias[j · bias_step]
  Index bias_step;
  Activation activation;
  const float* factor;  ///< element [i, j] at factor[i · factor_row_step + j]
  Index factor_row_step;
  const float* residual;  ///< element [i, j] at residual[i · row_step + j · column_step]
  Index row_step, column_step;
};

/// Consecutive rows of a column: types of fewer bits are packed in words, from which every
/// instruction set widens a row by a shift.
struct BfloatPair {
  bfloat16 row[2];
};
struct Int8Quad {
  std::int8_t row[4];
};
struct Int4Oct {
  std::uint32_t bits;  ///< row r: a signed integer in the bits 4·r … 4·r + 3
};

/// 32 rows of a panel, with their scales.
template <class Word, int rows>
struct PanelGroup {
  static constexpr int rows_of_word = rows;
  Word numbers[32 / rows][panel_columns];
  float16 scales[panel_columns];
};
using Int8Group = PanelGroup<Int8Quad, 4>;
using Int4Group = PanelGroup<Int4Oct, 8>;

/// The rows of a panel that are stored together: an item for each column, or one for all.
struct PanelUnit {
  Index rows, item_bytes, items;
  [[nodiscard]] constexpr Index bytes() const { return item_bytes * items; }
  /// Items of so many rows.
  [[nodiscard]] constexpr Index items_of(Index all) const { return (all + rows - 1) / rows * items; }
};
constexpr PanelUnit unit_of(DType type) {
  switch (type) {
    case DType::float32:
      return {1, sizeof(float), panel_columns};
    case DType::bfloat16:
      return {2, sizeof(BfloatPair), panel_columns};
    case DType::float16:
      return {1, sizeof(float16), panel_columns};
    case DType::int8:
      return {4, sizeof(Int8Quad), panel_columns};
    case DType::int8_group32:
      return {32, sizeof(Int8Group), 1};
    case DType::int4_group32:
      return {32, sizeof(Int4Group), 1};
  }
  return {};
}

/// c [m, n] = alpha · a · b + beta · c, one block along k (k <= block_size).
struct GemmBlock {
  Index m, n, k;
  const float* a;  ///< column stride 1
  Index a_row_step;
  const float* ahead;  ///< the rows that come next, to be prefetched: the strip at row i prefetches from row i on
  Index ahead_row_step, ahead_rows;
  const void* b;                   ///< panels of panel_columns columns: word [w, j] of a panel at w·b_row_step + j,
                                   ///< or groups one after the other
  DType b_type;                    ///< if not float32, panels are whole; columns from n on do not matter
  const float* b_scales;           ///< int8: of the columns of whole panels
  const float* b_sums;             ///< integers: likewise, the sums of their columns (PackedColumns)
  Index b_row_step, b_panel_step;  ///< strides of rows of words and of panels, in items of PanelUnit
  Index b_column_step;             ///< 0: panels; otherwise columns of floats, contiguous and so far apart
  bool prefetches;                 ///< rows, less than two strips, prefetch packed floats that come next
  const QuantisedRows* quantised;  ///< gemm_int8: the rows of a, which is not read; k is that of the product
  float* keep;                     ///< where to store b as packed panels of float, m >= 24 or another type; or null
  float* c;                        ///< column stride 1
  Index c_row_step;
  float alpha, beta;             ///< beta 0: c is not read
  const GemmEpilogue* epilogue;  ///< null: none, or another block follows
};

}  // namespace headlane::internal::kernels
