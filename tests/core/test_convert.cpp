// convert: the bits of the types' own conversions (dtype.hpp), for every number of 16 bits and for
// floats around all middles between them, in any layout and floating-point state.
#include "support/floating_point_state.hpp"
#include "support/guard.hpp"
#include "support/half_tensor.hpp"
#include "support/illegal.hpp"
#include "support/scope.hpp"

#include <doctest/doctest.h>
#include <headlane/convert.hpp>

#include <bit>

namespace headlane::test {
namespace {

template <class T>
View<T, 1> view_of(std::vector<T>& x) {
  return {x.data(), {std::ssize(x)}};
}

/// Every number; NaNs of all payloads are among them.
template <class T>
std::vector<T> all_numbers() {
  std::vector<T> all;
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) all.push_back(half_of<T>(static_cast<std::uint16_t>(bits)));
  return all;
}

/// Number of floats whose bits are not those of the widened numbers.
template <class T>
Index wrongly_widened(const std::vector<T>& from, const std::vector<float>& to) {
  Index wrong = 0;
  for (std::size_t i = 0; i < from.size(); ++i)
    wrong += std::bit_cast<std::uint32_t>(to[i]) != std::bit_cast<std::uint32_t>(static_cast<float>(from[i])) ? 1 : 0;
  return wrong;
}

template <class T>
Index wrongly_rounded(const std::vector<float>& from, const std::vector<T>& to) {
  Index wrong = 0;
  for (std::size_t i = 0; i < from.size(); ++i) wrong += to[i].bits != T(from[i]).bits ? 1 : 0;
  return wrong;
}

/// Both float16 and bfloat16 have their numbers and the middles between them among the floats whose
/// low 12 bits are 0; with each of these its neighbours, and a sample of all floats.
std::vector<float> floats_to_round() {
  std::vector<float> all;
  for (std::uint64_t word = 0; word < std::uint64_t{1} << 32; word += 0x1000) {
    if (slow_isa() && word % 0x7000 != 0) continue;
    for (const std::uint32_t step : {0u, 1u, 0xffffffffu})
      all.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(word) + step));
  }
  for (std::uint64_t word = 0; word < std::uint64_t{1} << 32; word += slow_isa() ? 10007 : 1009)
    all.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(word)));
  return all;
}

TEST_CASE_TEMPLATE("convert: every number of 16 bits is widened exactly", T, bfloat16, float16) {
  std::vector<T> from = all_numbers<T>();
  std::vector<float> to(from.size());
  convert(view_of(from), view_of(to));
  CHECK(wrongly_widened(from, to) == 0);
}

TEST_CASE_TEMPLATE("convert: floats around all middles are rounded to nearest, ties to even", T, bfloat16, float16) {
  std::vector<float> from = floats_to_round();
  std::vector<T> to(from.size());
  convert(view_of(from), view_of(to));
  MESSAGE(from.size(), " floats to ", name_of_half<T>(), ", isa ", isa());
  CHECK(wrongly_rounded(from, to) == 0);
}

#if defined(HEADLANE_TEST_HAS_STATE)
TEST_CASE_TEMPLATE("convert: the floating-point state of the caller changes no bit", T, bfloat16, float16) {
  std::vector<T> numbers = all_numbers<T>(), rounded;
  std::vector<float> floats, widened(numbers.size());
  for (std::uint64_t word = 0; word < std::uint64_t{1} << 32; word += 100003)
    floats.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(word)));
  for (std::uint32_t word = 0x33000000u - 5000; word < 0x33000000u + 5000; ++word)  // 2^-25
    floats.push_back(std::bit_cast<float>(word));
  rounded.resize(floats.size());
  const State original = state();
  for (const State s : all_states) {
    set_state(s);
    convert(view_of(numbers), view_of(widened));
    convert(view_of(floats), view_of(rounded));
    const State after = state();
    set_state(original);
    CHECK(after == s);
    CHECK(wrongly_widened(numbers, widened) == 0);
    CHECK(wrongly_rounded(floats, rounded) == 0);
  }
}
#endif

template <class T, std::size_t Rank>
void check_layouts(const std::array<Index, Rank>& shape, const Layout& one, const Layout& other, int threads) {
  constexpr int rank = static_cast<int>(Rank);
  Random random(5);
  Tensor<rank> floats(shape, one);
  for_each(floats.view, [&](float& x) { x = random.normal(); });
  const HalfTensor<T, rank> halves(shape, other);
  const Tensor<rank> back(shape, one);
  convert(floats.view, halves.view, {.num_threads = threads});
  convert(halves.view, back.view, {.num_threads = threads});
  INFO(name_of_half<T>(), ", ", one.name, " and ", other.name, ", ", threads, " threads, isa ", isa());
  CHECK(different_from_rounded(halves.view, floats.view) == 0);
  CHECK(different_bits(back.view, halves.widened().view) == 0);
  CHECK((halves.surroundings_untouched() && back.surroundings_untouched()));
}

TEST_CASE_TEMPLATE("convert: any shape and strides, any number of threads", T, bfloat16, float16) {
  std::vector<Layout> all = layouts();
  all.push_back({.name = "middle", .order = Order::middle});
  for (const Layout& one : all)
    for (const Layout& other : all) {
      check_layouts<T, 3>({3, 18, 35}, one, other, 1);
      check_layouts<T, 3>({2, 151, 300}, one, other, 3);
    }
  for (const Index n : tail_sizes) check_layouts<T, 1>({n}, {}, {}, 1);
  check_layouts<T, 8>({2, 1, 2, 1, 2, 1, 2, 19}, layouts()[3], layouts()[5], 1);
  const T one(0.75f);
  std::vector<float> y(60);
  convert(View<const T, 2>(&one, {12, 5}, {0, 0}), View<float, 2>(y.data(), {12, 5}));
  CHECK(std::all_of(y.begin(), y.end(), [](float x) { return x == 0.75f; }));
}

TEST_CASE_TEMPLATE("convert between guard pages, at every tail length", T, bfloat16, float16) {
  GuardedBuffer of_floats(4096), of_halves(4096);
  for (Index n = 0; n <= 130; ++n)
    for (const Place where : {Place::start, Place::end}) {
      float* floats = of_floats.place(n, 0, where);
      const Index words = (n + 1) / 2;
      auto* halves = reinterpret_cast<T*>(of_halves.place(words, 0, where)) + (where == Place::end ? n % 2 : 0);
      for (Index i = 0; i < n; ++i) floats[i] = static_cast<float>(i) + 0.1f;
      convert(View<const float, 1>(floats, {n}), View<T, 1>(halves, {n}));
      CHECK(of_halves.surroundings_untouched());
      std::fill_n(floats, n, 0.0f);
      convert(View<const T, 1>(halves, {n}), View<float, 1>(floats, {n}));
      CHECK(of_floats.surroundings_untouched());
      for (Index i = 0; i < n; ++i) REQUIRE(floats[i] == static_cast<float>(T(static_cast<float>(i) + 0.1f)));
    }
}

TEST_CASE_TEMPLATE("convert: nothing, however large its other sizes are", T, bfloat16, float16) {
  constexpr Index most = std::numeric_limits<Index>::max();
  convert(View<const float, 3>(nullptr, {huge, 0, most}, {most, -most, huge}), View<T, 3>(nullptr, {huge, 0, most}));
  convert(View<const T, 2>(nullptr, {most, 0}), View<float, 2>(nullptr, {most, 0}, {huge, huge}));
}

TEST_CASE_TEMPLATE("convert: illegal calls", T, bfloat16, float16) {
  const Tensor<2> floats({5, 7});
  const HalfTensor<T, 2> halves({5, 7});
  std::vector<Illegal> calls;
  add(calls, "convert", "to", wrong_outputs(floats.view), [&](auto view) { convert(halves.view, view); });
  add(calls, "convert", "from", wrong_views<const float, 2>(floats.view),
      [&](auto view) { convert(view, halves.view); });
  add(calls, "convert", "from", wrong_views<const T, 2>(halves.view), [&](auto view) { convert(view, floats.view); });
  add(calls, "convert", "to", wrong_views(halves.view), [&](auto view) { convert(floats.view, view); });
  const auto push = [&](const std::string& what, const std::function<void()>& call,
                        const std::vector<std::string>& words) { calls.push_back({what, call, words}); };
  const View<T, 2> same(reinterpret_cast<T*>(floats.view.data), {5, 7}, floats.view.strides);
  push("the same address", [=, &floats] { convert(floats.view, same); }, {"convert: to of shape [5, 7] overlaps from"});
  push("the same address", [=, &floats] { convert(same, floats.view); }, {"convert: to of shape [5, 7] overlaps from"});
  push("stride 0", [&] { convert(floats.view, View<T, 2>(halves.view.data, {5, 7}, {0, 1})); },
       {"to", "overlaps itself"});
  push("ranks", [&] { convert(floats.view, halves.view.select(0, 1)); }, {"convert", "rank 2", "rank 1"});
  push("threads", [&] { convert(floats.view, halves.view, {.num_threads = -1}); }, {"convert", "num_threads", "-1"});
  AnyView<T> ninth = halves.view;
  ninth.rank = 9;
  push("rank 9", [=, &floats] { convert(floats.view, ninth); }, {"convert", "to", "rank 9"});
  check_illegal(calls, [&] {
    bool untouched = all_sentinels(floats.view);
    for_each(halves.view, [&](const T& x) { untouched = untouched && x.bits == half_sentinel; });
    return untouched && halves.surroundings_untouched() && floats.surroundings_untouched();
  });
}

}  // namespace
}  // namespace headlane::test
