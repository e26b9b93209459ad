// Illegal calls of sinusoidal and rotary embeddings and of alibi_slopes; see test_bad_input.cpp.
#include "support/illegal.hpp"

#include <doctest/doctest.h>
#include <headlane/position.hpp>

#include <deque>

namespace headlane::test {
namespace {

constexpr Index most = Index{1} << 36;

TEST_CASE("sinusoidal encodings and slopes: illegal calls") {
  Random random(1);
  const Tensor<3> x = random_tensor<3>({2, 4, 6}, random), y({2, 4, 6});
  const View<float, 2> table = y.view.select(0, 0);
  std::vector<Illegal> calls;
  const View<const float, 3> vx = x.view;
  // A larger or smaller table is legal.
  for (const auto& wrong : wrong_outputs(table)) {
    if (wrong.what.starts_with("one")) continue;
    calls.push_back({wrong.what, [=] { sinusoidal_encoding(wrong.view); }, {"sinusoidal_encoding", "y"}});
  }
  add(calls, "add_sinusoidal_encoding", "x", wrong_views(vx),
      [&](auto view) { add_sinusoidal_encoding(view, y.view); });
  add(calls, "add_sinusoidal_encoding", "y", wrong_outputs(y.view),
      [=](auto view) { add_sinusoidal_encoding(vx, view); });
  const auto push = [&](const SinusoidalOptions& options, std::vector<std::string> words) {
    std::vector<std::string> both = words;
    both.emplace_back("add_sinusoidal_encoding: ");
    calls.push_back({words[0], [=, &y] { add_sinusoidal_encoding(vx, y.view, options); }, both});
    words.emplace_back("sinusoidal_encoding: ");
    calls.push_back({words[0], [=] { sinusoidal_encoding(table, options); }, words});
  };
  for (const Index offset : {-most - 1, most - 2, most + 1, huge, -huge, std::numeric_limits<Index>::min(),
                             std::numeric_limits<Index>::max()})
    push({.offset = offset}, {"offset", std::to_string(offset), "4"});
  for (const double base :
       {0.0, 0.999, -3.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
    push({.base = base}, {"base"});
  push({.exponent = static_cast<SinusoidalExponent>(7)}, {"exponent", "7"});
  push({.num_threads = -2}, {"num_threads", "-2"});
  calls.push_back({"scale", [=] { sinusoidal_encoding(table, {.scale = 2}); }, {"sinusoidal_encoding", "scale"}});
  calls.push_back({"rank", [&] { add_sinusoidal_encoding(vx.select(0, 0).select(0, 0), y.view); }, {"rank", "1"}});
  calls.push_back({"rank of y", [=] { add_sinusoidal_encoding(vx, table); }, {"rank", "2", "3"}});
  const View<float, 3> shifted(y.view.data + 1, {2, 4, 5}, y.view.strides);
  calls.push_back({"overlap",
                   [&] { add_sinusoidal_encoding(View<const float, 3>(y.view.data, {2, 4, 5}, {24, 6, 1}), shifted); },
                   {"y", "overlaps", "x"}});
  const Tensor<1> slopes({5});
  for (const auto& wrong : wrong_outputs(slopes.view)) {
    if (wrong.what.starts_with("one")) continue;
    calls.push_back({wrong.what, [=] { alibi_slopes(wrong.view); }, {"alibi_slopes", "slopes"}});
  }
  check_illegal(calls,
                [&] { return all_sentinels(y.view) && all_sentinels(slopes.view) && y.surroundings_untouched(); });
  CHECK(illegal_calls() >= 70);
  sinusoidal_encoding(table, {.offset = most - 3});  // the last is at 2^36
  sinusoidal_encoding(table, {.offset = -most});
  sinusoidal_encoding(View<float, 2>(nullptr, {5, 0}), {.base = 1});
  alibi_slopes({nullptr, {0}});
}

// Legal operands of rotary_embedding, and illegal calls.
struct Rotary {
  Random random{2};
  Tensor<4> x = random_tensor<4>({2, 3, 4, 8}, random), y{{2, 3, 4, 8}};
  std::vector<Index> positions = std::vector<Index>(8, 1);
  std::vector<float> frequencies = std::vector<float>(4, 0.5f);
  std::vector<Illegal> calls;

  void call(const RotaryOptions& options) const { rotary_embedding(x.view, y.view, options); }
  void push(const RotaryOptions& options, std::vector<std::string> words) {
    words.emplace_back("rotary_embedding: ");
    calls.push_back({words[0], [this, options] { call(options); }, words});
  }
  void check() const {
    check_illegal(calls, [&] { return all_sentinels(y.view) && y.surroundings_untouched(); });
  }
};

TEST_CASE("rotary_embedding: illegal views") {
  Rotary t;
  const View<const float, 4> vx = t.x.view;
  add(t.calls, "rotary_embedding", "x", wrong_views(vx), [&](auto view) { rotary_embedding(view, t.y.view); });
  add(t.calls, "rotary_embedding", "y", wrong_outputs(t.y.view), [=](auto view) { rotary_embedding(vx, view); });
  const auto with = [&](auto member, const char* name, const auto& good) {
    add(t.calls, "rotary_embedding", name, without_null(wrong_views(good)), [&t, member](auto view) {
      RotaryOptions options;
      options.*member = view;
      t.call(options);
    });
  };
  with(&RotaryOptions::positions, "positions", View<const Index, 2>(t.positions.data(), {2, 4}));
  with(&RotaryOptions::positions, "positions", View<const Index, 1>(t.positions.data(), {2}));
  with(&RotaryOptions::frequencies, "frequencies", View<const float, 1>(t.frequencies.data(), {4}));
  t.check();
  CHECK(illegal_calls() >= 120);
}

TEST_CASE("rotary_embedding: illegal values") {
  Rotary t;
  for (const Index dim : {Index{-2}, Index{1}, Index{7}, Index{9}, Index{10}, huge, -huge})
    t.push({.rotary_dim = dim}, {"rotary_dim", std::to_string(dim), "8"});
  for (const double base :
       {0.0, 0.999, -3.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
    t.push({.base = base}, {"base"});
  for (const Index offset : {-most - 1, most - 2, huge, -huge})
    t.push({.offset = offset}, {"offset", std::to_string(offset), "4"});
  t.push({.num_threads = -2}, {"num_threads", "-2"});
  std::deque<std::vector<Index>> wrong_positions;
  for (const Index wrong : {most + 1, -most - 1, huge, -huge, std::numeric_limits<Index>::min()}) {
    for (const std::size_t at : {0u, 1u, 7u}) {
      wrong_positions.push_back(t.positions);
      wrong_positions.back()[at] = wrong;
      t.push({.positions = View<const Index, 2>(wrong_positions.back().data(), {2, 4})},
             {"positions", std::to_string(wrong)});
    }
  }
  RotaryOptions options;
  options.positions = View<const Index, 2>(t.positions.data(), {2, 4});
  options.offset = most;
  t.push(options, {"offset + positions", std::to_string(most + 1)});
  const View<const Index, 3> cube(t.positions.data(), {2, 2, 2});
  options.offset = 0;
  options.positions = cube;
  t.push(options, {"positions has rank 3"});
  std::deque<std::vector<float>> wrong_frequencies;
  for (const float wrong : {nan, infinity, -infinity, 70000.0f, -65537.0f}) {
    wrong_frequencies.push_back({0.5f, 0.25f, 0.1f, wrong});
    RotaryOptions own;
    own.frequencies = {wrong_frequencies.back().data(), {4}};
    t.push(own, {"frequencies", "65536"});
  }
  const Tensor<1> odd({5});
  t.calls.push_back({"odd head_dim",
                     [&] {
                       rotary_embedding(View<const float, 4>(odd.view.data, {1, 1, 1, 5}),
                                        View<float, 4>(odd.view.data, {1, 1, 1, 5}));
                     },
                     {"rotary_dim is 5", "even"}});
  RotaryOptions over_frequencies, over_positions;
  over_frequencies.frequencies = {t.y.view.data + 3, {4}};
  over_positions.positions = View<const Index, 1>(reinterpret_cast<const Index*>(t.y.view.data + 16), {2});
  t.push(over_frequencies, {"y", "frequencies", "overlap"});
  t.push(over_positions, {"y", "positions", "overlap"});
  t.check();
  CHECK(all_sentinels(odd.view));
  MESSAGE(illegal_calls(), " illegal calls");
  CHECK(illegal_calls() >= 170);
}

TEST_CASE("rotary_embedding: empty axes, and the smallest and largest positions") {
  const Rotary t;
  rotary_embedding(View<const float, 4>(nullptr, {2, 3, 0, 8}), View<float, 4>(nullptr, {2, 3, 0, 8}));
  rotary_embedding(View<const float, 4>(nullptr, {2, 3, 4, 0}), View<float, 4>(nullptr, {2, 3, 4, 0}));
  t.call({.offset = most - 3});
  t.call({.offset = -most});
}

}  // namespace
}  // namespace headlane::test
