#include "gemm/quantised_rows.hpp"

#include "core/scratch.hpp"

namespace headlane::internal {

kernels::QuantisedRows quantise(const View<const float, 2>& a, Index row, Index rows,
                                const kernels::KernelTable& kernel) {
  const Index k = a.shape[1], row_bytes = quantised_row_bytes(k, kernel);
  constexpr Index word = sizeof(float);
  constexpr Index of_row = 3 + sizeof(Index) / word;  // columns of outliers first, for their alignment
  float* memory = scratch(Purpose::panels, rows * (row_bytes / word + of_row));
  float* scales = memory + rows * (of_row - 3);
  const kernels::QuantisedRows result{.numbers = reinterpret_cast<std::int8_t*>(memory + of_row * rows),
                                      .row_step = row_bytes,
                                      .odd = round_up(k, kernels::quantised_columns),
                                      .scales = scales,
                                      .centres = scales + rows,
                                      .outliers = scales + 2 * rows,
                                      .outlier_columns = reinterpret_cast<Index*>(memory),
                                      .first = 0};
  kernels::Source from = source(a, row, rows, 0, k);
  if (from.column_step != 1 && k > 1) {
    float* contiguous = scratch(Purpose::rows, rows * k);
    kernel.copy_rows(from, contiguous, k, 1);
    from = {contiguous, rows, k, k, 1};
  }
  kernel.quantise_rows(from, result);
  return result;
}

}  // namespace headlane::internal
