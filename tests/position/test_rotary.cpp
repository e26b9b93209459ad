// rotary_embedding against long double: pairing, partial rotation, positions, frequencies, strides,
// in place; the same bits everywhere.
#include "support/guard.hpp"
#include "support/position_case.hpp"

#include <doctest/doctest.h>

namespace headlane::test {
namespace {

using Shape = std::array<Index, 4>;

TEST_CASE(
    "rotary_embedding against long double: pairing, partial, offsets, positions, frequencies, layouts, in place") {
  Random random(1);
  const std::vector<Shape> shapes{{1, 1, 1, 2},  {2, 3, 5, 8},    {1, 2, 70, 64},
                                  {3, 2, 9, 34}, {2, 1, 33, 100}, {1, 4, 1, 66}};
  Index cases = 0;
  for (const Shape& shape : shapes) {
    const auto [batch, heads, length, dim] = shape;
    for (const Layout& layout : layouts()) {
      for (const bool interleaved : {false, true}) {
        for (int way = 0; way < 5; ++way) {
          const Tensor<4> x = random_tensor<4>(shape, random, layout),
                          y(shape, layouts()[static_cast<std::size_t>(++cases % 8)]);
          RotaryOptions options{.interleaved = interleaved};
          std::vector<Index> positions;
          std::vector<float> frequencies;
          if (way % 2 == 1) options.rotary_dim = std::max<Index>(dim / 2 / 2 * 2, 2);
          if (way != 0) options.offset = random.integer(-1000, 100000);
          if (way == 2 || way == 3) {  // some that follow each other, some alike
            for (Index i = 0; i < batch * length; ++i) positions.push_back(i % 7 == 3 ? 50 : 100 + i - i / 9);
            options.positions = way == 2 ? AnyView<const Index>(View<const Index, 1>(positions.data(), {batch}))
                                         : View<const Index, 2>(positions.data(), {batch, length});
          }
          if (way >= 3) {
            for (Index j = 0; j < rotary_dim_of(options, dim) / 2; ++j) frequencies.push_back(2 * random.uniform());
            options.frequencies = {frequencies.data(), {static_cast<Index>(frequencies.size())}};
          }
          if (way == 4) options.base = 1e6;
          rotary_embedding(x.view, y.view, options);
          compare_rotary(x.view, y.view, options, text_of(shape) + ", " + layout.name + ", way " + std::to_string(way));
          CHECK(y.surroundings_untouched());
          rotary_embedding(x.view, x.view, options);
          CHECK(different_bits(x.view, y.view) == 0);
          CHECK(x.surroundings_untouched());
        }
      }
    }
  }
  CHECK(cases == 480);
}

TEST_CASE("rotary_embedding: the norm of pairs stays, position 0 changes nothing, and one angle takes back the other") {
  Random random(2);
  const Tensor<4> x = random_tensor<4>({1, 2, 300, 64}, random), y({1, 2, 300, 64}), z({1, 2, 300, 64});
  rotary_embedding(x.view, y.view, {.offset = 5000});
  double worst = 0;
  for (Index h = 0; h < 2; ++h) {
    for (Index i = 0; i < 300; ++i) {
      for (Index j = 0; j < 32; ++j) {
        const double before = std::hypot(x.view(0, h, i, j), x.view(0, h, i, j + 32));
        const double after = std::hypot(y.view(0, h, i, j), y.view(0, h, i, j + 32));
        worst = std::max(worst, std::abs(after - before) / before);
      }
    }
  }
  MESSAGE("norms of pairs change by at most ", worst / unit, " · 2^-24");
  CHECK(worst < 5 * unit);
  const std::vector<Index> zeros(300, 0);
  RotaryOptions options;
  options.positions = View<const Index, 2>(zeros.data(), {1, 300});
  rotary_embedding(x.view, z.view, options);
  CHECK(different_bits(x.view, z.view) == 0);
  std::vector<Index> back(300);
  for (Index i = 0; i < 300; ++i) back[static_cast<std::size_t>(i)] = -(5000 + i);
  options.positions = View<const Index, 2>(back.data(), {1, 300});
  rotary_embedding(y.view, z.view, options);
  Index far = 0;
  for_each_position(x.view.shape, [&](const auto& at) {
    far += std::abs(x.view.data[offset_of(at, x.view.strides)] - z.view.data[offset_of(at, z.view.strides)]) < 1e-6f
               ? 0
               : 1;
  });
  CHECK(far == 0);
}

TEST_CASE("rotary_embedding: the same bits for every instruction set, number of threads, batch, head and slice") {
  Random random(3);
  for (const bool interleaved : {false, true}) {
    const Shape shape{2, 5, 300, 66};
    const Tensor<4> x = random_tensor<4>(shape, random), all(shape);
    {
      const IsaScope scope(available_isas().front());
      rotary_embedding(x.view, all.view,
                       {.rotary_dim = 62, .interleaved = interleaved, .offset = 17, .num_threads = 1});
    }
    for (const int threads : {1, 2, 3, 7}) {
      const Tensor<4> y(shape);
      rotary_embedding(x.view, y.view,
                       {.rotary_dim = 62, .interleaved = interleaved, .offset = 17, .num_threads = threads});
      CHECK(different_bits(y.view, all.view) == 0);
    }
    for (const Index first :
         {0, 1, 31, 128, 299}) {  // a row of a head alone, as in decoding, by offset and by position
      for (const bool by_position : {false, true}) {
        const Tensor<4> y({1, 1, 1, 66});
        RotaryOptions options{.rotary_dim = 62, .interleaved = interleaved, .offset = 17 + first};
        if (by_position) options.offset = 10;
        const Index position = 7 + first;
        if (by_position) options.positions = View<const Index, 1>(&position, {1});
        const auto part = [&](const View<float, 4>& v) {
          return v.slice(0, 1, 2).slice(1, 3, 4).slice(2, first, first + 1);
        };
        rotary_embedding(part(x.view), y.view, options);
        CHECK(different_bits(y.view, part(all.view)) == 0);
      }
    }
    // Few rows, so that heads are divided among the threads.
    const Tensor<4> wide = random_tensor<4>({8, 300, 2, 64}, random), one({8, 300, 2, 64}), many({8, 300, 2, 64});
    rotary_embedding(wide.view, one.view, {.interleaved = interleaved, .offset = 99, .num_threads = 1});
    rotary_embedding(wide.view, many.view, {.interleaved = interleaved, .offset = 99, .num_threads = 3});
    CHECK(different_bits(one.view, many.view) == 0);
  }
}

TEST_CASE("rotary_embedding: given frequencies and a base take turns") {
  Random random(4);
  const Tensor<4> x = random_tensor<4>({1, 1, 9, 32}, random), first({1, 1, 9, 32}), other({1, 1, 9, 32});
  const std::vector<float> frequencies(16, 0.25f);
  RotaryOptions given;
  given.frequencies = {frequencies.data(), {16}};
  rotary_embedding(x.view, first.view, {.offset = 5});
  rotary_embedding(x.view, other.view, given);
  CHECK(different_bits(first.view, other.view) > 100);
  for (const double base : {10000.0, 500.0, 10000.0}) {
    rotary_embedding(x.view, other.view, {.base = base, .offset = 5});
    CHECK((different_bits(first.view, other.view) == 0) == (base == 10000.0));
  }
}

TEST_CASE("rotary_embedding between guard pages") {
  GuardedRows<4> guarded;
  Guarded<1> guarded_frequencies;
  everywhere([&](Index length, Index gap, Place where) {
    Random random(static_cast<std::uint64_t>(length));
    RotaryOptions options{.interleaved = gap % 2 == 0, .offset = 3};
    options.rotary_dim = gap % 3 == 0 ? length / 3 / 2 * 2 : length / 2 * 2;
    if (options.rotary_dim == 0) return;
    const Tensor<4> x = random_tensor<4>({1, 1, 3, length}, random), y({1, 1, 3, length});
    const Tensor<1> frequencies = random_tensor<1>({options.rotary_dim / 2}, random);
    guarded_frequencies.place(frequencies.view, {}, gap, where);
    options.frequencies = frequencies.view;
    rotary_embedding(x.view, y.view, options);
    options.frequencies = guarded_frequencies.view;
    guarded.check("rotary_embedding", x.view, y.view, length, gap, where,
                  [&](const View<float, 4>& from, const View<float, 4>& to) { rotary_embedding(from, to, options); });
  });
  guarded.counts.finish("rotary_embedding");
}

}  // namespace
}  // namespace headlane::test
