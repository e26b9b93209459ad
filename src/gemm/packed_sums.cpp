// The sums of the columns of a matrix of integers.
#include "gemm/check.hpp"
#include "gemm/packed_units.hpp"

#include <algorithm>

namespace headlane::internal {
namespace {

using kernels::panel_columns;

/// Adds the rows of a unit to the sums of its columns. Sums of up to 132000 integers are exact.
template <DType type>
void add_unit(const void* unit, float* sums) {
  int totals[panel_columns] = {};
  for (Index i = 0; i < kernels::unit_of(type).rows; ++i)
    for (Index j = 0; j < panel_columns; ++j) totals[j] += number(unit, type, i, j);
  for (Index j = 0; j < panel_columns; ++j)
    sums[j] += static_cast<float>(totals[j]) * (has_groups(type) ? scale_of_group(unit, type, j) : 1.0f);
}

}  // namespace

void set_sums(const PackedMatrix& matrix, int num_threads) {
  if (!has_sums(matrix.type()) || matrix.data() == nullptr) return;
  const PackedColumns columns = packed_columns(matrix);
  auto* const sums = const_cast<float*>(columns.sums);  // whoever makes the matrix calls
  std::fill_n(sums, columns.width, 0.0f);
  with_type(matrix.type(), [&]<DType type> {
    if constexpr (has_sums(type))
      for_each_unit(columns, matrix.columns(), threads_for(matrix, num_threads),
                    [&](const void* unit, const Part& part) { add_unit<type>(unit, sums + part.column); });
  });
}

}  // namespace headlane::internal
