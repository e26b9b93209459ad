// softmax with mask, bias, lengths, causal and axis in random combinations: against the oracle, and
// bit by bit against plain softmax of rows with -inf at masked elements.
#include "support/guard.hpp"
#include "support/softmax_case.hpp"

namespace headlane::test {
namespace {

TEST_CASE("softmax: all options, layouts and axes") {
  Index masked = 0;
  for (std::uint64_t seed = 1; seed <= (slow_isa() ? 300 : 1200); ++seed) {
    Random random(seed);
    Shape shape{random.integer(1, 3), random.integer(1, 3), random.integer(1, 6), random.integer(1, 40)};
    if (random.integer(0, 1) == 1) std::swap(shape[3], shape[static_cast<std::size_t>(random.integer(0, 3))]);
    const auto axis = static_cast<std::size_t>(random.integer(0, 3));
    shape[axis] = random.pick(std::vector<Index>{1, 2, 7, 15, 16, 17, 32, 33, 64, 65, 100, 150});
    const SoftmaxCase c(shape, axis, random);
    const Shuffled y(shape, random);
    softmax(c.x.view, y.view, c.options);
    check_rows(c, y.view, seed);
    masked += c.masked() ? 1 : 0;
    CHECK_MESSAGE(y.surroundings_untouched(), c.text());

    // Along the last axis of a permuted view; in place; with threads.
    std::array<int, 4> axes{0, 1, 2, 3};
    std::rotate(axes.begin() + static_cast<int>(axis), axes.begin() + static_cast<int>(axis) + 1, axes.end());
    SoftmaxOptions permuted = c.options;
    permuted.axis = -1;
    if (c.of_mask.data != nullptr) permuted.mask = c.of_mask.permuted(axes);
    if (c.of_bias.data != nullptr) permuted.bias = c.of_bias.permuted(axes);
    const Tensor<4> other(shape);
    softmax(c.x.view.permuted(axes), other.view.permuted(axes), permuted);
    CHECK_MESSAGE(different_bits(other.view, y.view) == 0, "permuted, ", c.text());
    softmax(c.x.view, c.x.view, c.options);
    CHECK_MESSAGE(different_bits(c.x.view, y.view) == 0, "in place, ", c.text());
    CHECK_MESSAGE(c.x.surroundings_untouched(), c.text());
  }
  CHECK(masked > 200);
}

TEST_CASE("softmax: the same bits for every number of threads and every axis that is long") {
  for (const std::size_t axis : {0u, 1u, 2u, 3u}) {
    for (std::uint64_t seed = 1; seed <= (slow_isa() ? 4 : 12); ++seed) {
      Random random(seed);
      Shape shape{2, 3, 37, 41};
      std::swap(shape[3], shape[axis]);
      shape[axis] *= 4;
      SoftmaxCase c(shape, axis, random);
      const Shuffled one(shape, random);
      c.options.num_threads = 1;
      softmax(c.x.view, one.view, c.options);
      check_rows(c, one.view, seed);
      const ThreadsScope all(7);
      for (const int threads : {2, 3, 0}) {
        const Shuffled y(shape, random);
        c.options.num_threads = threads;
        softmax(c.x.view, y.view, c.options);
        CHECK_MESSAGE(different_bits(y.view, one.view) == 0, threads, " threads, ", c.text());
      }
    }
  }
}

TEST_CASE("softmax: a mask that is all true changes no bit, one that is all false leaves nothing") {
  for (const bool log : {false, true}) {
    for (Index n = 1; n <= 130; ++n) {
      Random random(3);
      const Tensor<2> x = random_tensor<2>({3, n}, random), plain({3, n}), y({3, n});
      const std::array<bool, 2> flags{true, false};
      for (const float scale : {1.0f, -0.7f, 0.0f}) {
        SoftmaxOptions options{.scale = scale, .log = log};
        softmax(x.view, plain.view, options);
        options.mask = View<const bool, 2>(flags.data(), {3, n}, {0, 0});
        softmax(x.view, y.view, options);
        CHECK(different_bits(y.view, plain.view) == 0);
        options.mask = View<const bool, 2>(&flags[1], {3, n}, {0, 0});
        softmax(x.view, y.view, options);
        for_each(y.view, [&](float e) { CHECK(e == (log ? -infinity : 0)); });
      }
    }
  }
}

TEST_CASE("softmax: special values among the elements that take part") {
  const Index n = 5;
  const bool flags[n] = {true, true, true, false, false};
  struct Special {
    std::array<float, 3> visible;  // the elements that take part
    float result;                  // of each of them
  };
  for (const bool log : {false, true}) {
    const float masked = log ? -infinity : 0;
    for (const Special& s : {Special{.visible = {nan, 1, -infinity}, .result = nan},
                             {.visible = {1, infinity, 2}, .result = nan},
                             {.visible = {-infinity, -infinity, nan}, .result = nan},
                             {.visible = {-infinity, -infinity, -infinity}, .result = masked},
                             {.visible = {infinity, nan, 0}, .result = nan}}) {
      const Tensor<1> x({n}), y({n});
      const float values[n] = {s.visible[0], s.visible[1], s.visible[2], infinity, nan};
      for (Index j = 0; j < n; ++j) x.view(j) = values[j];
      SoftmaxOptions options{.scale = 0.5f, .log = log};
      options.mask = View<const bool, 1>(flags, {n});
      softmax(x.view, y.view, options);
      for (Index j = 0; j < n; ++j) CHECK(bits_of(y.view(j)) == bits_of(j < 3 ? s.result : masked));
    }
  }
}

TEST_CASE("softmax: causal offsets, however large") {
  constexpr Index most = std::numeric_limits<Index>::max();
  for (const Index offset :
       {-most - 1, Index{-9}, Index{-6}, Index{-5}, Index{0}, Index{3}, Index{6}, Index{7}, most}) {
    const Tensor<2> x({6, 7}), y({6, 7});
    for_each(x.view, [](float& e) { e = 1; });
    SoftmaxOptions options{};
    options.causal = true;
    options.causal_offset = offset;
    softmax(x.view, y.view, options);
    for (Index i = 0; i < 6; ++i) {
      const Index clamped = std::clamp<Index>(offset, -10, 10), visible = std::clamp<Index>(i + 1 + clamped, 0, 7);
      for (Index j = 0; j < 7; ++j) CHECK(y.view(i, j) == (j < visible ? 1 / static_cast<float>(visible) : 0));
    }
  }
}

// x, mask and bias [3 or 33, n] that end where padding begins: after `length` elements of the last
// row, or along axis 0 of the first one.
TEST_CASE("softmax: padding is not read") {
  Counts counts;
  GuardedBuffer of_x(Index{40} << 10), of_bias(Index{40} << 10), of_mask(Index{40} << 10);
  for (Index length = 0; length <= 70; ++length) {
    for (const Index rows : {3, 33}) {
      for (const bool columns : {false, true}) {
        for (const Index inner : {1, 2}) {
          const Index n = length + 40;
          // Along axis 0 only the first row has `length` elements: a block of rows may read no more
          // of any of them.
          std::vector<Index> lengths(static_cast<std::size_t>(rows), columns ? std::max<Index>(length - 1, 0) : n);
          lengths[columns ? 0 : static_cast<std::size_t>(rows - 1)] = length;
          const std::array<Index, 2> strides{(columns ? rows : n) * inner, inner};
          const Index size =
              columns ? std::max<Index>(length - 1, 0) * strides[0] + 1 : (rows - 1) * strides[0] + length * inner;
          const std::array<Index, 2> shape = columns ? std::array<Index, 2>{n, rows} : std::array<Index, 2>{rows, n};
          const Index used = inner == 2 && !columns ? size - 1 : size;  // the last gap is no element
          const View<float, 2> x(of_x.place(used, 0, Place::end), shape, strides);
          const View<float, 2> bias(of_bias.place(used, 0, Place::end), shape, strides);
          auto* flags = reinterpret_cast<bool*>(of_mask.place(used / 4 + 1, 0, Place::end));
          flags += (used / 4 + 1) * 4 - used;
          for (Index i = 0; i < used; ++i) {
            x.data[i] = static_cast<float>(i % 7);
            bias.data[i] = static_cast<float>(i % 3);
            flags[i] = i % 5 != 0;
          }
          SoftmaxOptions options{};
          options.axis = columns ? 0 : 1;
          options.mask = View<const bool, 2>(flags, shape, strides);
          options.bias = View<const float, 2>(bias.data, shape, strides);
          options.lengths = View<const Index, 1>(lengths.data(), {rows});
          const Tensor<2> y(shape);
          softmax(x, y.view, options);
          Index wrong = 0;
          for_each_position(shape, [&](const auto& at) {
            const Index row = at[columns ? 1 : 0], j = at[columns ? 0 : 1], i = offset_of(at, strides);
            const bool visible = j < lengths[static_cast<std::size_t>(row)] && i % 5 != 0;
            const float e = y.view.data[offset_of(at, y.view.strides)];
            wrong += (visible ? e > 0 : e == 0) ? 0 : 1;
          });
          counts.add(wrong == 0, y.surroundings_untouched(), text_of_case("padding", length, rows, Place::end));
        }
      }
    }
  }
  counts.finish("softmax padding", 500);
}

TEST_CASE_TEMPLATE("softmax: a bias of 16 bits between guard pages, and one element for all", T, bfloat16, float16) {
  Random random(4);
  GuardedBuffer of_bias(4096);
  for (const Index n : {1, 2, 15, 16, 17, 33, 65})
    for (const Place where : {Place::start, Place::end}) {
      const Tensor<2> x = random_tensor<2>({3, n}, random), y({3, n}), expected({3, n});
      const HalfTensor<T, 2> bias(random_tensor<2>({3, n}, random).view), half_x(x.view), half_y({3, n});
      const Tensor<2> wide_bias = bias.widened(), wide_x = half_x.widened();
      const View<T, 2> given = placed(of_bias, bias.view, where);
      softmax(x.view, y.view, {.bias = given});
      softmax(x.view, expected.view, {.bias = wide_bias.view});
      CHECK(different_bits(y.view, expected.view) == 0);
      softmax(half_x.view, half_y.view, {.bias = given});
      softmax(wide_x.view, expected.view, {.bias = wide_bias.view});
      CHECK(different_from_rounded(half_y.view, expected.view) == 0);
    }
  const T one(-2.0f);
  const Index most = std::numeric_limits<Index>::max(), huge = Index{1} << 62;
  softmax(View<const float, 2>(nullptr, {huge, 0}), View<float, 2>(nullptr, {huge, 0}),
          {.bias = View<const T, 2>(&one, {huge, 0}, {most, most})});
  const Tensor<2> x({300, 8});
  for_each(x.view, [](float& e) { e = 1; });
  softmax(x.view, x.view, {.bias = View<const T, 2>(&one, {300, 8}, {0, 0})});
  for_each(x.view, [](float e) { CHECK(e == 0.125f); });
}

}  // namespace
}  // namespace headlane::test
