#include "layers/rows.hpp"

#include <algorithm>
#include <limits>
#include <new>

namespace headlane::internal {

View<float, 3> scratch_rows(Purpose purpose, Index batch, Index length, Index width) {
  Index rows = 0, floats = 0;
  if (__builtin_mul_overflow(batch, length, &rows) || __builtin_mul_overflow(rows, width, &floats) ||
      floats > std::numeric_limits<Index>::max() / 8)
    throw std::bad_alloc();
  return {scratch(purpose, std::max<Index>(floats, 1)), {batch, length, width}};
}

}  // namespace headlane::internal
