// Sinusoidal and rotary embeddings, slopes: every argument wrong in every way, as in test_bad_input.cpp.
#include "support/illegal.hpp"

#include <doctest/doctest.h>
#include <headlane/position.hpp>

namespace headlane::test {
namespace {

constexpr Index most = Index{1} << 36;

TEST_CASE("sinusoidal encodings and slopes: illegal calls") {
  Random random(1);
  const Tensor<3> x = random_tensor<3>({2, 4, 6}, random), y({2, 4, 6});
  const View<float, 2> table = y.view.select(0, 0);
  std::vector<Illegal> calls;
  const View<const float, 3> vx = x.view;
  // What is only larger or smaller is another table.
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

TEST_CASE("rotary_embedding: illegal calls") {
  Random random(2);
  const Tensor<4> x = random_tensor<4>({2, 3, 4, 8}, random), y({2, 3, 4, 8});
  const View<const float, 4> vx = x.view;
  std::vector<Index> positions(8, 1);
  std::vector<float> frequencies(4, 0.5f);
  std::vector<Illegal> calls;
  const auto call = [&](const RotaryOptions& options) { rotary_embedding(vx, y.view, options); };
  add(calls, "rotary_embedding", "x", wrong_views(vx), [&](auto view) { rotary_embedding(view, y.view); });
  add(calls, "rotary_embedding", "y", wrong_outputs(y.view), [=](auto view) { rotary_embedding(vx, view); });
  const auto null_is_none = [](const void* data) {
    if (data == nullptr) throw std::invalid_argument("rotary_embedding: positions, frequencies: null means none");
  };
  const auto with = [&](auto member, const char* name, const auto& good) {
    add(calls, "rotary_embedding", name, wrong_views(good), [=](auto view) {
      null_is_none(view.data);
      RotaryOptions options;
      options.*member = view;
      call(options);
    });
  };
  with(&RotaryOptions::positions, "positions", View<const Index, 2>(positions.data(), {2, 4}));
  with(&RotaryOptions::positions, "positions", View<const Index, 1>(positions.data(), {2}));
  with(&RotaryOptions::frequencies, "frequencies", View<const float, 1>(frequencies.data(), {4}));
  const auto push = [&](const RotaryOptions& options, std::vector<std::string> words) {
    words.emplace_back("rotary_embedding: ");
    calls.push_back({words[0], [=] { call(options); }, words});
  };
  for (const Index dim : {Index{-2}, Index{1}, Index{7}, Index{9}, Index{10}, huge, -huge})
    push({.rotary_dim = dim}, {"rotary_dim", std::to_string(dim), "8"});
  for (const double base :
       {0.0, 0.999, -3.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
    push({.base = base}, {"base"});
  for (const Index offset : {-most - 1, most - 2, huge, -huge})
    push({.offset = offset}, {"offset", std::to_string(offset), "4"});
  push({.num_threads = -2}, {"num_threads", "-2"});
  std::vector<std::vector<Index>> wrong_positions;
  for (const Index wrong : {most + 1, -most - 1, huge, -huge, std::numeric_limits<Index>::min()}) {
    for (const std::size_t at : {0u, 1u, 7u}) {
      wrong_positions.push_back(positions);
      wrong_positions.back()[at] = wrong;
      RotaryOptions options;
      options.positions = View<const Index, 2>(wrong_positions.back().data(), {2, 4});
      calls.push_back({"a position",
                       [=, all = wrong_positions.back()] {
                         RotaryOptions own = options;
                         own.positions.data = all.data();
                         call(own);
                       },
                       {"rotary_embedding", "positions", std::to_string(wrong)}});
    }
  }
  RotaryOptions options;
  options.positions = View<const Index, 2>(positions.data(), {2, 4});
  options.offset = most;
  push(options, {"offset + positions", std::to_string(most + 1)});
  const View<const Index, 3> cube(positions.data(), {2, 2, 2});
  options.offset = 0;
  options.positions = cube;
  push(options, {"positions has rank 3"});
  for (const float wrong : {nan, infinity, -infinity, 70000.0f, -65537.0f}) {
    calls.push_back({"a frequency",
                     [=] {
                       const std::vector<float> all{0.5f, 0.25f, 0.1f, wrong};
                       RotaryOptions own;
                       own.frequencies = {all.data(), {4}};
                       call(own);
                     },
                     {"rotary_embedding", "frequencies", "65536"}});
  }
  const Tensor<1> odd({5});
  calls.push_back({"odd head_dim",
                   [&] {
                     rotary_embedding(View<const float, 4>(odd.view.data, {1, 1, 1, 5}),
                                      View<float, 4>(odd.view.data, {1, 1, 1, 5}));
                   },
                   {"rotary_dim is 5", "even"}});
  calls.push_back({"y over frequencies",
                   [&] {
                     RotaryOptions own;
                     own.frequencies = {y.view.data + 3, {4}};
                     call(own);
                   },
                   {"y", "frequencies", "overlap"}});
  calls.push_back({"y over positions",
                   [&] {
                     RotaryOptions own;
                     own.positions = View<const Index, 1>(reinterpret_cast<const Index*>(y.view.data + 16), {2});
                     call(own);
                   },
                   {"y", "positions", "overlap"}});
  check_illegal(calls, [&] { return all_sentinels(y.view) && all_sentinels(odd.view) && y.surroundings_untouched(); });
  MESSAGE(illegal_calls(), " illegal calls");
  CHECK(illegal_calls() >= 170);
  // Legal: nothing to rotate along an empty axis, and rows at either end.
  rotary_embedding(View<const float, 4>(nullptr, {2, 3, 0, 8}), View<float, 4>(nullptr, {2, 3, 0, 8}));
  rotary_embedding(View<const float, 4>(nullptr, {2, 3, 4, 0}), View<float, 4>(nullptr, {2, 3, 4, 0}));
  call({.offset = most - 3});
  call({.offset = -most});
}

}  // namespace
}  // namespace headlane::test
