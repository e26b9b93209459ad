// View: the result of each method, element by element, and errors; FloatingView.
#include "support/data.hpp"

#include <doctest/doctest.h>
#include <headlane/floating_view.hpp>

#include <cmath>
#include <limits>
#include <numeric>

namespace headlane::test {
namespace {

// Element i of memory is i, so that a value is its own offset.
struct Counted {
  std::vector<float> memory = std::vector<float>(2 * 3 * 8);
  View<float, 3> view{memory.data(), {2, 3, 8}};
  Counted() { std::iota(memory.begin(), memory.end(), 0.0f); }
};

TEST_CASE("View: dense strides are row-major, elements are where the strides say") {
  const Counted c;
  CHECK(c.view.strides == std::array<Index, 3>{24, 8, 1});
  CHECK(c.view.size(0) == 2);
  CHECK(c.view.size(-1) == 8);
  CHECK(c.view.stride(1) == 8);
  CHECK(c.view.stride(-3) == 24);
  CHECK(c.view(1, 2, 3) == 43);
  const View<const float, 2> negative(c.memory.data() + 47, {6, 8}, {-8, -1});
  CHECK(negative(0, 0) == 47);
  CHECK(negative(5, 7) == 0);
  const View<float, 1> empty;
  CHECK(empty.data == nullptr);
  CHECK(empty.size(0) == 0);
}

TEST_CASE("View: converts to a view of const, and to any rank") {
  const Counted c;
  const View<const float, 3> constant = c.view;
  CHECK(constant.data == c.view.data);
  CHECK(constant.strides == c.view.strides);
  const AnyView<const float> any = c.view.transposed();
  CHECK(any.rank == 3);
  CHECK(any.data == c.view.data);
  CHECK(any.shape[1] == 8);
  CHECK(any.shape[2] == 3);
  CHECK(any.strides[1] == 1);
  CHECK(any.strides[2] == 8);
  CHECK(AnyView<float>().rank == 0);
}

TEST_CASE("View: transposed and permuted") {
  const Counted c;
  const View<float, 3> t = c.view.transposed();
  const View<float, 3> p = c.view.permuted({2, 0, 1});
  CHECK(t.shape == std::array<Index, 3>{2, 8, 3});
  CHECK(p.shape == std::array<Index, 3>{8, 2, 3});
  for_each_position(c.view.shape, [&](const auto& at) {
    CHECK(t(at[0], at[2], at[1]) == c.view(at[0], at[1], at[2]));
    CHECK(p(at[2], at[0], at[1]) == c.view(at[0], at[1], at[2]));
  });
}

TEST_CASE("View: slice and select") {
  const Counted c;
  const View<float, 3> s = c.view.slice(-1, 2, 7);
  CHECK(s.shape == std::array<Index, 3>{2, 3, 5});
  CHECK(s(1, 2, 0) == c.view(1, 2, 2));
  CHECK(c.view.slice(1, 3, 3).shape == std::array<Index, 3>{2, 0, 8});
  CHECK(c.view.slice(1, 3, 3).data == c.view.data);
  const View<float, 2> row = c.view.select(1, 2);
  CHECK(row.shape == std::array<Index, 2>{2, 8});
  CHECK(row(1, 5) == c.view(1, 2, 5));
  CHECK(c.view.select(-1, 7)(1, 1) == c.view(1, 1, 7));
}

// The sanitizers refuse arithmetic on null, and the product of a position and such a stride.
TEST_CASE("View: slice and select without elements keep the address, null included") {
  const View<const float, 3> v(nullptr, {4, 3, 0}, {std::numeric_limits<Index>::max() / 2, 1, 1});
  CHECK(v.slice(0, 3, 4).data == nullptr);
  CHECK(v.slice(1, 2, 3).shape == std::array<Index, 3>{4, 1, 0});
  CHECK(v.select(0, 3).data == nullptr);
  CHECK(v.select(0, 3).shape == std::array<Index, 2>{3, 0});
  const Counted c;
  CHECK(c.view.slice(2, 8, 8).slice(0, 1, 2).data == c.view.data);
}

TEST_CASE("View: split makes heads, broadcast repeats") {
  const Counted c;
  const View<float, 4> heads = c.view.split(2, 4);
  CHECK(heads.shape == std::array<Index, 4>{2, 3, 2, 4});
  const View<float, 4> repeated = c.view.broadcast(1, 5);
  CHECK(repeated.shape == std::array<Index, 4>{2, 5, 3, 8});
  CHECK(repeated.strides == std::array<Index, 4>{24, 0, 8, 1});
  for_each_position(c.view.shape, [&](const auto& at) {
    CHECK(heads(at[0], at[1], at[2] / 4, at[2] % 4) == c.view(at[0], at[1], at[2]));
    CHECK(repeated(at[0], 4, at[1], at[2]) == c.view(at[0], at[1], at[2]));
  });
  CHECK(c.view.broadcast(3, 2).strides == std::array<Index, 4>{24, 8, 1, 0});
  CHECK(c.view.slice(2, 0, 0).split(2, 1).shape == std::array<Index, 4>{2, 3, 0, 1});
}

TEST_CASE("View: is usable at compile time") {
  constexpr View<const float, 2> v(nullptr, {3, 4});
  static_assert(v.transposed().shape[0] == 4);
  CHECK(v.stride(0) == 4);
}

TEST_CASE("FloatingView, AnyFloatingView: the type and the elements of the view that they were made of") {
  const std::vector<float> wide{1, 2, 3, 4, 5, 6};
  std::vector<float16> half;
  for (const float x : wide) half.emplace_back(x);
  const View<float16, 2> transposed(half.data(), {3, 2}, {1, 3});
  const FloatingView<2> none, of_float(wide.data(), {2, 3}), of_half(transposed);
  CHECK(!none);
  CHECK(none.type == DType::float32);
  CHECK(of_float.type == DType::float32);
  CHECK(of_half.type == DType::float16);
  CHECK(of_float(1, 2) == 6);
  CHECK(of_half(2, 1) == 6);
  const FloatingView<2> part = of_half.slice(0, 1, 3);
  CHECK(part.type == DType::float16);
  CHECK(part.shape == std::array<Index, 2>{2, 2});
  CHECK(part(0, 1) == 5);

  CHECK(!AnyFloatingView());
  CHECK(AnyFloatingView(of_float).type == DType::float32);
  const AnyView<float16> any = transposed;
  for (const AnyFloatingView& view : {AnyFloatingView(transposed), AnyFloatingView(any), AnyFloatingView(of_half)}) {
    CHECK(view);
    CHECK(view.type == DType::float16);
    CHECK(view.rank == 2);
    CHECK(view.of<float16>().data == half.data());
    CHECK(view.of<float16>().shape == any.shape);
    CHECK(view.of<float16>().strides == any.strides);
  }
}

// The buffers that all other tests rely on must themselves notice a stray write.
TEST_CASE("test buffers notice a write beside the view") {
  Random random(1);
  for (const Layout& layout : layouts()) {
    const Tensor<2> t = random_tensor<2>({3, 5}, random, layout);
    CHECK(t.surroundings_untouched());
    float* first = std::min(&t.view(0, 0), &t.view(2, 4));
    *(first - 1) = 0;
    CHECK_FALSE(t.surroundings_untouched());
  }
  GuardedBuffer guarded(100);
  float* p = guarded.place(10, 3, Place::end);
  p[0] = p[9] = 1;
  CHECK(guarded.surroundings_untouched());
  p[10] = 1;
  CHECK_FALSE(guarded.surroundings_untouched());
}

TEST_CASE("test data is the same everywhere") {
  Random random(1);
  CHECK(random.next() == 0x910a2dec89025cc1u);
  CHECK(random.uniform() == doctest::Approx(0.488).epsilon(0.01).scale(0));
  double sum = 0, squares = 0;
  for (int i = 0; i < 100000; ++i) {
    const double x = random.normal();
    sum += x;
    squares += x * x;
  }
  CHECK(std::abs(sum / 100000) < 0.02);
  CHECK(std::abs(squares / 100000 - 1) < 0.02);
}

}  // namespace
}  // namespace headlane::test
