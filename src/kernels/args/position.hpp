// Arguments of the kernels for positions: sines and cosines, rotation.
#pragma once

#include <headlane/index.hpp>

#include <cstdint>

namespace headlane::internal::kernels {

/// Angles as fractions of a turn in 63 bits: `high` has the upper 32, `low` the lower 31. The
/// arrays hold a multiple of 16.
struct Phases {
  Index count;                                ///< angles
  std::uint32_t *high, *low;                  ///< of the current row
  const std::uint32_t *high_step, *low_step;  ///< row strides
};

/// Rows of sines and cosines of angles. The phases advance to the row after the last one.
struct SinCosRows {
  Phases phases;
  Index rows;
  float* sin;
  float* cos;  ///< in the same array; null: sin, cos, sin, cos … in `sin`
  Index row_step;
  Index columns;  ///< of sines and cosines together, 2·count, or one less: the last angle has no cosine
};

/// Rows y = fma(x, scale, addend) of n elements with stride 1.
struct ScaleAddRows {
  const float* x;
  float* y;  ///< may be x
  Index x_step, y_step;
  Index rows, n;
  float scale;
  const float* addend;
  Index addend_step;
};

/// Rows whose first 2·pairs elements are rotated and whose other elements are copied. Elements have
/// stride 1.
struct RotaryRows {
  const float* x;
  float* y;  ///< may be x
  Index x_step, y_step;
  Index rows, columns, pairs;
  const float *sin, *cos;  ///< [rows, table_step]
  Index table_step;
  bool interleaved;  ///< pairs are 2j, 2j+1; otherwise j, j + pairs
};

}  // namespace headlane::internal::kernels
