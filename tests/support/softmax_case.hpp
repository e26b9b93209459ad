// Calls of softmax with random options, and the expected result of each row.
#pragma once

#include "support/half_tensor.hpp"
#include "support/mask_case.hpp"
#include "support/rowwise_case.hpp"

#include <headlane/softmax.hpp>

namespace headlane::test {

inline const char* name_of(const SoftmaxOptions& options) { return options.log ? "log_softmax" : "softmax"; }

/// The bounds of softmax.hpp for a row.
inline ExpectedRow with_bounds(const SoftmaxReference& row, bool log) {
  ExpectedRow result{.value = row.value, .bound = {}};
  const Index n = std::ssize(row.value);
  for (std::size_t j = 0; j < row.value.size(); ++j)
    result.bound.push_back(log ? log_softmax_bound(n, row.distance[j], row.value[j])
                               : softmax_bound(n, row.distance[j], row.value[j]));
  return result;
}

/// The oracle of a row without mask and bias, for compare_rows().
inline auto expected_softmax(const SoftmaxOptions& options) {
  return [options](const std::vector<float>& row) { return with_bounds(softmax_reference(row, options), options.log); };
}

using Shape = std::array<Index, 4>;

inline Shape without(const Shape& shape, std::size_t axis) {
  Shape result = shape;
  result[axis] = 1;
  return result;
}

// A tensor whose axes lie in memory in any order.
struct Shuffled {
  std::array<int, 4> order;  // axis i of memory is this one of the view
  Tensor<4> memory;
  View<float, 4> view;

  Shuffled(const Shape& shape, Random& random)
      : order(shuffled(random)),
        memory(in_memory(shape), random.pick(layouts())),
        view(memory.view.permuted(inverse())) {}

  [[nodiscard]] bool surroundings_untouched() const { return memory.surroundings_untouched(); }

 private:
  static std::array<int, 4> shuffled(Random& random) {
    std::array<int, 4> order{0, 1, 2, 3};
    for (std::size_t i = 3; i > 0; --i)
      std::swap(order[i], order[static_cast<std::size_t>(random.integer(0, Index(i)))]);
    return order;
  }
  [[nodiscard]] Shape in_memory(const Shape& shape) const {
    Shape result{};
    for (std::size_t i = 0; i < 4; ++i) result[i] = shape[static_cast<std::size_t>(order[i])];
    return result;
  }
  [[nodiscard]] std::array<int, 4> inverse() const {
    std::array<int, 4> result{};
    for (std::size_t i = 0; i < 4; ++i) result[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
    return result;
  }
};

// The arguments of a call. At masked elements x and bias hold NaN, infinities and large numbers,
// which would show in the result.
struct SoftmaxCase {
  Shape shape;
  std::size_t axis;
  Shuffled x;
  Mask mask;
  Tensor<4> bias;
  HalfTensor<bfloat16, 4> bfloat_bias{{1, 1, 1, 1}};
  HalfTensor<float16, 4> half_bias{{1, 1, 1, 1}};
  std::vector<Index> lengths;
  View<const bool, 4> of_mask;      // null if it is not given
  View<const float, 4> of_bias;     // likewise; widened, if it is of 16 bits
  View<const Index, 4> of_lengths;  // with the axis, of which it has one element
  SoftmaxOptions options;

  SoftmaxCase(const Shape& shape_, std::size_t axis_, Random& random)
      : shape(shape_),
        axis(axis_),
        x(shape, random),
        mask(random_mask(broadcast(random), random, random.integer(1, 5), random.pick(layouts()))),
        bias(random_bias(broadcast(random), random, random.integer(2, 9), random.pick(layouts()))) {
    for_each(x.view, [&](float& e) { e = 2 * random.normal(); });
    options.axis = static_cast<int>(axis) - (random.integer(0, 1) == 1 ? 4 : 0);
    options.scale = random.pick(std::vector<float>{1, 1, 0.3f, -1.5f, 0});
    options.log = random.integer(0, 1) == 1;
    if (random.integer(0, 1) == 1) options.mask = of_mask = stretched<bool>(mask.view, shape);
    if (random.integer(0, 2) == 1) set_bias(random);
    if (random.integer(0, 2) == 1) set_lengths(random);
    options.causal = axis == 3 && random.integer(0, 2) == 1;
    options.causal_offset = random.integer(-4, 20);
    const Index special = random.integer(0, 3);
    for_each_position(shape, [&](const auto& at) {
      float& e = x.view.data[offset_of(at, x.view.strides)];
      if (special != 0 && !takes_part(at)) e = random.pick(std::vector<float>{nan, infinity, -infinity, 1e38f, 50});
      if (special == 3 && random.integer(1, 60) == 1) e = random.pick(std::vector<float>{nan, infinity, -infinity});
    });
  }

  Shape broadcast(Random& random) const {
    Shape result = shape;
    for (Index& size : result)
      if (random.integer(1, 4) == 1) size = 1;
    return result;
  }

  void set_bias(Random& random) {
    const auto round_to = [&]<class T>(HalfTensor<T, 4>& rounded) {
      rounded = HalfTensor<T, 4>(bias.view, random.pick(layouts()));
      bias = rounded.widened();
      options.bias = stretched(rounded.view, shape);
    };
    const Index type = random.integer(0, 3);
    if (type == 0) round_to(bfloat_bias);
    else if (type == 1) round_to(half_bias);
    else options.bias = stretched(bias.view, shape);
    of_bias = stretched<float>(bias.view, shape);
  }

  void set_lengths(Random& random) {
    Shape of = without(broadcast(random), axis);
    lengths.resize(static_cast<std::size_t>(of[0] * of[1] * of[2] * of[3]));
    for (Index& length : lengths) length = random.integer(0, 3) == 1 ? shape[axis] : random.integer(0, shape[axis]);
    of_lengths = stretched<const Index>({lengths.data(), of}, without(shape, axis));
    options.lengths.data = of_lengths.data;
    options.lengths.rank = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      if (i == axis) continue;
      const auto to = static_cast<std::size_t>(options.lengths.rank++);
      options.lengths.shape[to] = of_lengths.shape[i];
      options.lengths.strides[to] = of_lengths.strides[i];
    }
  }

  [[nodiscard]] bool takes_part(const Shape& at) const {
    if (options.causal && at[3] > at[2] + options.causal_offset) return false;
    if (!lengths.empty() && at[axis] >= of_lengths.data[offset_of(without_axis(at), of_lengths.strides)]) return false;
    if (of_mask.data != nullptr && !of_mask.data[offset_of(at, of_mask.strides)]) return false;
    return of_bias.data == nullptr || of_bias.data[offset_of(at, of_bias.strides)] != -infinity;
  }

  [[nodiscard]] Shape without_axis(Shape at) const {
    at[axis] = 0;
    return at;
  }

  [[nodiscard]] bool masked() const {
    return of_mask.data != nullptr || of_bias.data != nullptr || !lengths.empty() || options.causal;
  }

  [[nodiscard]] std::string text() const {
    std::ostringstream text;
    text << text_of(shape) << ", axis " << options.axis << ", scale " << options.scale << (options.log ? ", log" : "")
         << (of_mask.data != nullptr ? ", mask" : "")
         << (options.bias ? std::string(", bias of ") + headlane::name_of(options.bias.type) : "")
         << (lengths.empty() ? "" : ", lengths") << (options.causal ? ", causal" : "") << ", isa " << isa();
    return text.str();
  }
};

// One row of a case.
struct SoftmaxRow {
  std::vector<float> x, bias;
  std::vector<bool> visible;

  SoftmaxRow(const SoftmaxCase& c, Shape at) {
    for (Index j = 0; j < c.shape[c.axis]; ++j) {
      at[c.axis] = j;
      x.push_back(c.x.view.data[offset_of(at, c.x.view.strides)]);
      if (c.of_bias.data != nullptr) bias.push_back(c.of_bias.data[offset_of(at, c.of_bias.strides)]);
      visible.push_back(c.takes_part(at));
    }
  }

  // The expected bits, by plain softmax.
  [[nodiscard]] std::vector<float> bits(const SoftmaxOptions& options, bool masked) const {
    SoftmaxOptions plain{.scale = options.scale, .log = options.log};
    const bool scaled = !bias.empty() || options.scale == 0;
    if (scaled) plain.scale = 1;
    std::vector<float> scores(x.size(), plain.scale < 0 ? infinity : -infinity), y(x.size());
    bool empty = masked;
    for (std::size_t j = 0; j < x.size(); ++j) {
      if (!visible[j]) continue;
      scores[j] = scaled ? std::fma(x[j], options.scale, bias.empty() ? -0.0f : bias[j]) : x[j];
      empty = empty && plain.scale * scores[j] == -infinity;
    }
    const auto n = static_cast<Index>(x.size());
    softmax(View<const float, 1>(scores.data(), {n}), View<float, 1>(y.data(), {n}), plain);
    for (std::size_t j = 0; j < x.size(); ++j)
      if (empty || !visible[j]) y[j] = options.log ? -infinity : 0;
    return y;
  }
};

// Compares each row of y with the oracle, and bit by bit with plain softmax.
inline void check_rows(const SoftmaxCase& c, const View<float, 4>& y, std::uint64_t seed) {
  Comparison comparison(name_of(c.options) + std::string(" masked"), c.text(), seed, Comparison::Kind::special);
  Index different = 0;
  for_each_position(without(c.shape, c.axis), [&](Shape at) {
    const SoftmaxRow row(c, at);
    const Index n = c.shape[c.axis];
    const std::vector<float> bits = row.bits(c.options, c.masked());
    // Without any option a row of -inf is NaN, as in test_softmax.cpp.
    const SoftmaxReference expected = c.masked() ? masked_softmax_reference(row.x, row.visible, row.bias, c.options)
                                                 : softmax_reference(row.x, c.options);
    const std::vector<double> bounds = with_bounds(expected, c.options.log).bound;
    for (std::size_t j = 0; j < row.x.size(); ++j) {
      at[c.axis] = static_cast<Index>(j);
      const float actual = y.data[offset_of(at, y.strides)];
      different += bits_of(actual) == bits_of(bits[j]) ? 0 : 1;
      const double value = expected.value[j];
      double bound = bounds[j];
      if (c.of_bias.data != nullptr && value != 0)
        bound += bias_roundings(n, expected.distance[j], expected.max) * unit * (c.options.log ? 1 : value);
      comparison.add({at[0], at[1], at[2], at[3]}, actual, value, bound);
    }
  });
  comparison.finish();
  CHECK_MESSAGE(different == 0, different, " bits: ", c.text(), ", seed ", seed);
}

}  // namespace headlane::test
