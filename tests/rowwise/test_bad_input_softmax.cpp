// Illegal options of softmax; see test_bad_input.cpp.
#include "support/half_tensor.hpp"
#include "support/illegal.hpp"
#include "support/mask_case.hpp"

#include <doctest/doctest.h>
#include <headlane/softmax.hpp>

namespace headlane::test {
namespace {

// Legal operands, and illegal calls.
struct Operands {
  Random random{1};
  Tensor<3> x = random_tensor<3>({3, 4, 5}, random), y{{3, 4, 5}}, bias = random_tensor<3>({3, 4, 5}, random);
  Mask mask{{1, 3, 4, 5}};
  std::vector<Index> values = std::vector<Index>(12, 5);
  View<const bool, 3> vmask = mask.view.select(0, 0);
  View<const Index, 2> vlengths{values.data(), {3, 4}};
  std::vector<Illegal> calls;

  void call(const SoftmaxOptions& options) const { softmax(x.view, y.view, options); }
  void push(const std::string& what, const SoftmaxOptions& options, std::vector<std::string> words) {
    words.emplace_back("softmax");
    calls.push_back({"softmax, " + what, [this, options] { call(options); }, words});
  }
  void check() const {
    check_illegal(calls, [&] { return all_sentinels(y.view) && y.surroundings_untouched(); });
  }
};

TEST_CASE("softmax: illegal views of options") {
  Operands o;
  add(o.calls, "softmax", "bias", without_null(wrong_views<const float, 3>(o.bias.view)),
      [&](auto view) { o.call({.bias = view}); });
  const HalfTensor<float16, 3> half_bias({3, 4, 5});
  add(o.calls, "softmax", "bias", without_null(wrong_views<const float16, 3>(half_bias.view)),
      [&](auto view) { o.call({.bias = view}); });
  std::vector<Wrong<const bool, 3>> wrong_masks = without_null(wrong_views(o.vmask));
  std::erase_if(wrong_masks, [](const auto& wrong) { return wrong.what == "misaligned"; });  // bytes need no alignment
  add(o.calls, "softmax", "mask", wrong_masks, [&](auto view) { o.call({.mask = view}); });
  add(o.calls, "softmax", "lengths", without_null(wrong_views(o.vlengths)),
      [&](auto view) { o.call({.lengths = view}); });
  o.check();
  CHECK(illegal_calls() >= 40);
}

TEST_CASE("softmax: illegal values and ranks of options") {
  Operands o;
  const auto push = [&](const char* what, const SoftmaxOptions& options, const std::vector<std::string>& words) {
    o.push(what, options, words);
  };
  const View<const bool, 3> vmask = o.vmask;
  const View<const Index, 2> vlengths = o.vlengths;
  SoftmaxOptions options{};
  for (const int axis : {3, -4, 100, std::numeric_limits<int>::min()})
    push("axis", {.axis = axis}, {"axis", std::to_string(axis), "[3, 4, 5]"});
  push("num_threads", {.num_threads = -1}, {"num_threads", "-1"});
  for (const int axis : {0, 1, -2}) push("causal", {.axis = axis, .causal = true}, {"causal", "axis", "[3, 4, 5]"});
  options.mask = vmask.select(0, 0);
  push("rank of mask", options, {"mask", "2", "3"});
  options.mask = View<const bool, 4>(vmask.data, {3, 4, 5, 1});
  push("a larger rank of mask", options, {"mask has rank 4, x has rank 3"});
  options = {};
  options.bias = View<const float, 3>(o.bias.view).select(0, 0);
  push("rank of bias", options, {"bias", "2", "3"});
  options = {};
  options.lengths = vlengths.select(0, 0);
  push("rank of lengths", options, {"lengths", "1", "2"});
  options.lengths = vlengths;
  options.axis = 0;
  push("lengths for another axis", options, {"lengths", "3", "4"});
  const Tensor<1> row({5});
  o.calls.push_back({"softmax, causal of one axis",
                     [&] { softmax(row.view, row.view, {.causal = true}); },
                     {"softmax", "causal", "[5]"}});
  o.check();
  CHECK(all_sentinels(row.view));
}

TEST_CASE("softmax: one length out of range, at any position, also broadcast") {
  Operands o;
  std::vector<std::vector<Index>> wrong_values;
  for (const Index wrong : {Index{-1}, Index{6}, huge, -huge}) {
    for (const std::size_t at : {0u, 5u, 11u}) {
      wrong_values.push_back(o.values);
      wrong_values.back()[at] = wrong;
    }
  }
  for (const std::vector<Index>& wrong : wrong_values) {
    SoftmaxOptions options;
    options.lengths = View<const Index, 2>(wrong.data(), {3, 4});
    const Index value = *std::find_if(wrong.begin(), wrong.end(), [](Index i) { return i != 5; });
    o.push("a length", options, {"lengths", std::to_string(value), "5"});
    options.lengths = View<const Index, 2>(&*std::find(wrong.begin(), wrong.end(), value), {3, 4}, {0, 0});
    o.push("a length for all rows", options, {"lengths", std::to_string(value), "5"});
  }
  o.check();
}

// Not in place, and with y as x.
TEST_CASE("softmax: y over the views of options") {
  Random random(1);
  const Tensor<3> x = random_tensor<3>({3, 4, 5}, random);
  const View<const float, 3> vx = x.view;
  const Tensor<1> shared({200});
  const float* floats = shared.view.data;
  std::vector<Illegal> calls;
  SoftmaxOptions options;
  const View<float, 3> out(shared.view.data + 20, {3, 4, 5});
  for (const Index shift : {-19, 0, 1, 59}) {
    options = {};
    options.bias = View<const float, 3>(floats + 20 + shift, {3, 4, 5});
    calls.push_back({"softmax, y over bias",
                     [=] { softmax(vx, out, options); },
                     {"softmax: y of shape", "overlaps bias of shape"}});
    calls.push_back({"softmax in place, y over bias",
                     [=] { softmax(out, out, options); },
                     {"softmax: y of shape", "overlaps bias of shape"}});
    options.bias = View<const bfloat16, 3>(reinterpret_cast<const bfloat16*>(floats + 20) + 2 * shift + 1, {3, 4, 5});
    calls.push_back({"softmax, y over bias of bfloat16",
                     [=] { softmax(vx, out, options); },
                     {"softmax: y of shape", "overlaps bias of shape"}});
    options = {};
    options.mask = View<const bool, 3>(reinterpret_cast<const bool*>(floats + 20) + shift, {3, 4, 5});
    calls.push_back({"softmax, y over mask",
                     [=] { softmax(vx, out, options); },
                     {"softmax: y of shape", "overlaps mask of shape"}});
  }
  std::vector<Index> memory(64, 0);
  const View<float, 3> on_lengths(reinterpret_cast<float*>(memory.data()), {3, 4, 5});
  for (const Index shift : {0, 1, 20, 29}) {
    options = {};
    options.lengths = View<const Index, 2>(memory.data() + shift, {3, 4}, {0, 0});
    calls.push_back({"softmax, y over lengths",
                     [=] { softmax(vx, on_lengths, options); },
                     {"softmax: y of shape", "overlaps lengths of shape"}});
  }
  check_illegal(calls, [&] {
    return all_sentinels(shared.view) && std::all_of(memory.begin(), memory.end(), [](Index i) { return i == 0; });
  });
  CHECK(illegal_calls() >= 88);
}

TEST_CASE("softmax: one illegal length is found at any position and with any strides") {
  const Tensor<4> x({2, 3, 4, 5});
  for_each(x.view, [](float& e) { e = 1; });
  constexpr Index size = 200;
  std::vector<Index> values(2 * size, 5);
  for (const std::array<Index, 3> strides : {std::array<Index, 3>{12, 4, 1},
                                             {-12, 4, 1},
                                             {12, -4, 1},
                                             {12, 4, -1},
                                             {1, 2, 6},
                                             {-3, 7, -50},
                                             {0, 4, 1},
                                             {12, 0, 1},
                                             {12, 4, 0},
                                             {0, 0, 1},
                                             {0, -1, 0},
                                             {7, 0, 0},
                                             {0, 0, 0}}) {
    const View<const Index, 3> lengths(values.data() + size, {2, 3, 4}, strides);
    std::vector<bool> had(values.size());
    for_each(lengths, [&](const Index& one) { had[static_cast<std::size_t>(&one - values.data())] = true; });
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = 6;
      SoftmaxOptions options;
      options.lengths = lengths;
      bool refused = false;
      try {
        softmax(x.view, x.view, options);
      } catch (const std::invalid_argument&) {
        refused = true;
      }
      CHECK_MESSAGE(refused == had[i], "strides ", strides[0], ", ", strides[1], ", ", strides[2], ", element ", i);
      values[i] = 5;
    }
  }
}

TEST_CASE("softmax: unusual options that are legal") {
  SoftmaxOptions options{};
  const Index five = 5;
  options.lengths.data = &five;  // one length, of rank 0, for the only row
  const Tensor<1> x({5}), y({5});
  for_each(x.view, [](float& e) { e = 1; });
  softmax(x.view, y.view, options);
  CHECK(y.view(4) == 0.2f);
  const Index none = 0;
  options.lengths.data = &none;
  softmax(x.view, y.view, options);
  CHECK(y.view(0) == 0);
  options = {};
  options.axis = 1;
  softmax(View<const float, 3>(nullptr, {huge, huge, 0}), View<float, 3>(nullptr, {huge, huge, 0}), options);
  // An axis of one element may have any stride, here of each view.
  constexpr Index least = std::numeric_limits<Index>::min();
  const bool flags[5] = {true, true, true, true, false};
  for (const Index stride : {Index{0}, huge, -huge, least}) {
    for (const int axis : {0, 1}) {
      options = {};
      options.axis = axis;
      options.mask = View<const bool, 2>(flags, {1, 5}, {stride, 1});
      options.bias = View<const float, 2>(x.view.data, {1, 5}, {stride, 1});
      softmax(View<const float, 2>(x.view.data, {1, 5}, {stride, 1}), View<float, 2>(y.view.data, {1, 5}, {stride, 1}),
              options);
      for (Index j = 0; j < 5; ++j) CHECK(y.view(j) == (j == 4 ? 0 : axis == 0 ? 1 : 0.25f));
    }
  }
}

}  // namespace
}  // namespace headlane::test
