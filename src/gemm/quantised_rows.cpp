#include "gemm/quantised_rows.hpp"

#include "core/scratch.hpp"

namespace headlane::internal {

kernels::QuantisedRows quantise(const View<const float, 2>& a, Index row, Index rows,
                                const kernels::KernelTable& kernel) {
  const Index k = a.shape[1], row_bytes = quantised_row_bytes(k, kernel);
  constexpr Index word = sizeof(float);
  float* memory = scratch(Purpose::panels, rows * (row_bytes / word + 2));
  const kernels::QuantisedRows result{.numbers = reinterpret_cast<std::int8_t*>(memory + 2 * rows),
                                      .row_step = row_bytes,
                                      .odd = round_up(k, kernels::quantised_columns),
                                      .scales = memory,
                                      .starts = reinterpret_cast<std::int32_t*>(memory + rows)};
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
