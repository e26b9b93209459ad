#include "io/tensor_memory.hpp"

#include "io/error.hpp"

#include <new>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace headlane::models::internal {

std::shared_ptr<float> allocate_floats(std::size_t n) {
  constexpr std::align_val_t line{64};
  return {static_cast<float*>(operator new(n * sizeof(float), line)), [](float* p) { operator delete(p, line); }};
}

ReturnsFreedMemory::~ReturnsFreedMemory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

AnyView<const float> dense_view(std::span<const Index> shape, const std::filesystem::path& path,
                                std::string_view subject) {
  const std::size_t rank = shape.size();
  if (rank > static_cast<std::size_t>(max_rank)) fail(path, subject, "has ", rank, " axes, the maximum is ", max_rank);
  AnyView<const float> view;
  view.rank = static_cast<int>(rank);
  Index stride = 1;
  for (std::size_t axis = rank; axis-- > 0;) {
    view.shape[axis] = shape[axis];
    view.strides[axis] = stride;
    stride = headlane::detail::wrapping_product(stride, shape[axis]);  // sizes of an empty tensor may overflow
  }
  return view;
}

}  // namespace headlane::models::internal
