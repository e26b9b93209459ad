// Multiplies two small matrices through the public interface and checks the product.
#include <headlane/headlane.hpp>

#include <cstdio>

int main() {
  const float a[] = {1, 2, 3, 4, 5, 6};
  const float b[] = {7, 8, 9, 10, 11, 12};
  float c[4] = {};
  headlane::gemm(headlane::View<const float, 2>(a, {2, 3}), headlane::View<const float, 2>(b, {3, 2}),
                 headlane::View<float, 2>(c, {2, 2}));
  const bool right = c[0] == 58 && c[1] == 64 && c[2] == 139 && c[3] == 154;
  std::printf("headlane %s, %s, %d threads: %g %g %g %g, %s\n", headlane::version().data(), headlane::isa().data(),
              headlane::num_threads(), static_cast<double>(c[0]), static_cast<double>(c[1]), static_cast<double>(c[2]),
              static_cast<double>(c[3]), right ? "right" : "wrong");
  return right ? 0 : 1;
}
