#include "partial_result.hpp"

#include <algorithm>
#include <limits>

namespace headlane::mpi::internal {

void copy(const View<const float, 4>& from, const View<float, 4>& to) {
  const Index dim = from.shape[3];
  if (dim == 0) return;
  for (Index b = 0; b < from.shape[0]; ++b)
    for (Index h = 0; h < from.shape[1]; ++h)
      for (Index i = 0; i < from.shape[2]; ++i) {
        const float* source = &from(b, h, i, 0);
        float* target = &to(b, h, i, 0);
        if (from.strides[3] == 1 && to.strides[3] == 1) std::copy_n(source, dim, target);
        else
          for (Index j = 0; j < dim; ++j) target[j * to.strides[3]] = source[j * from.strides[3]];
      }
}

void clear_padding(const View<float, 3>& out, const View<float, 2>& lse, const Rows& rows, Index query_length) {
  for (Index h = 0; h < out.shape[0]; ++h)
    for (Index i = std::max<Index>(query_length - rows.position, 0); i < rows.count; ++i) {
      for (Index j = 0; j < out.shape[2]; ++j) out(h, i, j) = 0;
      if (lse) lse(h, i) = -std::numeric_limits<float>::infinity();
    }
}

}  // namespace headlane::mpi::internal
