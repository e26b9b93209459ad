// Layers between guard pages: x, memory, y and the weights end (or begin) where memory does.
#include "support/guard.hpp"
#include "support/layer_case.hpp"

#include <doctest/doctest.h>

namespace headlane::test {
namespace {

TEST_CASE("layers read and write nothing outside of x, memory and y") {
  Guarded<3> x, memory, y;
  Counts counts;
  for (const LayerSizes& s : layer_sizes()) {
    for (const AnyLayer& layer : all_layers(s, 1)) {
      for (const Index length : {1, 2, 5, 13, 16, 17, 31}) {
        const Index batch = 1 + length % 3, keys = 1 + length % 20;
        Random random(static_cast<std::uint64_t>(length));
        const Tensor<3> from = random_tensor<3>({batch, length, layer.in}, random);
        const Tensor<3> of_memory = random_tensor<3>({batch, keys, s.memory_width}, random);
        const Tensor<3> expected({batch, length, layer.out}), to({batch, length, layer.out});
        layer.forward(from.view, of_memory.view, expected.view, {});
        for (Index gap = 0; gap < 4; ++gap) {
          for (const Place where : {Place::start, Place::end}) {
            x.place(from.view, layout_of(length, gap, 0), gap, where);
            memory.place(of_memory.view, layout_of(length, gap, 1), gap, where);
            y.place(to.view, layout_of(length, gap, 2), gap, where);
            layer.forward(x.view, memory.view, y.view, {});
            counts.add(different_bits(y.view, expected.view) == 0, y.buffer.surroundings_untouched(),
                       text_of_case(layer.name, length, gap, where));
            if (!layer.in_place) continue;
            layer.forward(x.view, memory.view, x.view, {});
            counts.add(different_bits(x.view, expected.view) == 0, x.buffer.surroundings_untouched(),
                       text_of_case("in place", length, gap, where));
          }
        }
      }
    }
  }
  counts.finish("layers");
}

TEST_CASE("layers are made of tensors that end where memory does, and keep nothing of them") {
  Guarded<2> matrix;
  Guarded<1> vector;
  Counts counts;
  for (const Index in : {1, 15, 32, 33, 65}) {
    for (const Index out : {1, 31, 32, 40}) {
      RandomState state(3);
      state.matrix("weight", out, in);
      state.vector("bias", out);
      Random random(4);
      const Tensor<3> x = random_tensor<3>({2, 3, in}, random), y({2, 3, out}), expected({2, 3, out});
      Linear(state.dict).forward(x.view, expected.view);
      const auto& w = state.dict.at("weight");
      const auto& b = state.dict.at("bias");
      Tensor<2> of_w({out, in});
      Tensor<1> of_b({out});
      copy<2>({w.data, {out, in}, {w.strides[0], w.strides[1]}}, of_w.view);
      copy<1>({b.data, {out}, {b.strides[0]}}, of_b.view);
      for (Index gap = 0; gap < 3; ++gap) {
        for (const Place where : {Place::start, Place::end}) {
          matrix.place(of_w.view, layout_of(in, gap, 1), gap, where);
          vector.place(of_b.view, layout_of(in, gap, 1), gap, where);
          const StateDict dict{{"weight", View<const float, 2>(matrix.view)},
                               {"bias", View<const float, 1>(vector.view)}};
          const Linear linear(dict);
          const Embedding table(dict), tied(dict, "", {.tied = true});
          for_each(matrix.view, [](float& e) { e = nan; });
          for_each(vector.view, [](float& e) { e = nan; });
          linear.forward(x.view, y.view);
          counts.add(different_bits(y.view, expected.view) == 0, true, text_of_case("weight", in, gap, where));
          const Index last = out - 1;
          const Tensor<3> a({1, 1, in}), c({1, 1, in});
          table.forward({&last, {1, 1}}, a.view);
          tied.forward({&last, {1, 1}}, c.view);
          const View<float, 1> row = of_w.view.select(0, last);
          counts.add(different_bits(a.view.select(0, 0).select(0, 0), row) == 0 &&
                         different_bits(c.view.select(0, 0).select(0, 0), row) == 0,
                     true, text_of_case("table", in, gap, where));
        }
      }
    }
  }
  counts.finish("tensors of layers", 200);
}

}  // namespace
}  // namespace headlane::test
