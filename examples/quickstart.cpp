// Self-attention of 100 words: d_model = 512, eight heads of 64 side by side.
#include <headlane/headlane.hpp>

#include <iostream>
#include <vector>

int main() {
  const headlane::Index length = 100, d_model = 512, heads = 8;
  std::vector<float> x(length * d_model, 0.5f), out(x.size());
  const headlane::View<const float, 2> in(x.data(), {length, d_model});
  headlane::multi_head_attention(in, in, in, {out.data(), {length, d_model}}, heads, {.causal = true});
  std::cout << out[0] << " on " << headlane::isa() << ", " << headlane::num_threads() << " threads\n";
}
