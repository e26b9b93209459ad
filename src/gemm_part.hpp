// A part of a product: some rows and columns of c, one block along k. What gemm.cpp hands out as tasks.
#pragma once

#include "gemm.hpp"
#include "kernels/table.hpp"

namespace headlane {

/// One block along k: rows first … first+k of b.
struct Step {
  Index first, k;
  float beta;  // of c for this block: 1 from the second one on
  bool last;   // what the product ends with follows
};

/// Rows and columns of c that one task computes.
struct Part {
  Index row, rows, column, columns;
};

/// Rows and columns of an operand, for packing.
inline kernels::Source source(const View<const float, 2>& view, Index row, Index rows, Index column, Index columns) {
  return {view.data + row * view.strides[0] + column * view.strides[1], rows, columns, view.strides[0],
          view.strides[1]};
}

/// With b packed: `panels` holds columns `packed_from` … of this step, one panel after the other.
void compute_packed(const Product& p, const Step& step, const Part& part, const float* panels, Index packed_from);

/// With b where it stands: whole vectors of its rows; what is left of the columns is packed, for a tile reads whole vectors.
void compute_direct(const Product& p, const Step& step, const Part& part);

/// All of c where there is no product: beta · c, and what follows.
void compute_nothing(const Product& p);

}  // namespace headlane
