// attention_weights and attention_key_sums: NaN and infinities, empty axes, memory, illegal calls.
#include "support/allocation_count.hpp"
#include "support/illegal.hpp"
#include "support/weights_case.hpp"

#include <sys/resource.h>

namespace headlane::test {
namespace {

// The weights of one head would take 256 MiB.
TEST_CASE("attention_key_sums: nothing of the size of the weights is stored") {
#if !defined(HEADLANE_TEST_SANITIZED)
  const Index length = slow_isa() ? 4000 : 8000;
  const Weights w({.q_heads = 2, .kv_heads = 1, .q_length = 0, .kv_length = length, .head_dim = 1}, 1);
  Random random(1);
  const Tensor<4> q = random_tensor<4>({1, 2, length, 1}, random);
  const auto peak = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss / 1024;  // MiB
  };
  const long before = peak();
  attention_key_sums(q.view, w.t.k.view, w.sums.view, causal(0));
  const long more = peak() - before;
  CHECK_MESSAGE(more < 16, more, " MiB, isa ", isa());
  double sum = 0;
  for_each(w.sums.view, [&](float x) { sum += x; });
  CHECK(sum == doctest::Approx(2.0 * static_cast<double>(length)).epsilon(1e-4));
#endif
}

TEST_CASE("attention_weights: a NaN reaches the rows to which it is visible; masked keys have weight 0") {
  Random random(3);
  const AttentionSizes s{.q_heads = 2, .kv_heads = 1, .q_length = 30, .kv_length = 600, .head_dim = 16, .value_dim = 8};
  for (const float bad : {nan, infinity, -infinity}) {
    for (int i = 0; i < 8; ++i) {
      const Weights w(s, static_cast<std::uint64_t>(i));
      const Index row = random.integer(0, 29), key = random.integer(0, 599), dim = random.integer(0, 15);
      const bool in_query = i % 2 == 0;
      (in_query ? w.t.q.view(0, 1, row, dim) : w.t.k.view(0, 0, key, dim)) = bad;
      AttentionOptions o = causal(570);
      o.window_left = 300;
      o.lse = w.t.lse.view;
      const Tensor<1> sinks({2});
      sinks.view(0) = 1;
      sinks.view(1) = std::vector<float>{1, -infinity, infinity, nan}[static_cast<std::size_t>(i / 2)];
      if (i % 4 > 1 || i > 4) o.sinks = sinks.view;
      w.run(o);
      attention_key_sums(w.t.q.view, w.t.k.view, w.sums.view, o);
      const Tensor<3> expected(w.sums.view.shape);
      add_rows(w.weights.view, expected.view);
      CHECK(different_bits(w.sums.view, expected.view) == 0);
      const Tensor<3> lse(w.t.lse.view.shape);
      copy<3>(w.t.lse.view, lse.view);
      w.t.run(o);
      CHECK_MESSAGE(different_bits(lse.view, w.t.lse.view) == 0, "seed ", i, ", isa ", isa(), ", ", bad);
      for_each_position(w.t.lse.view.shape, [&](const auto& p) {
        const RowReference r = row_reference(w.t.q.view, w.t.k.view, o, 0, p[1], p[2]);
        Index wrong = 0;
        for (Index j = 0; j < s.kv_length; ++j) {
          const float x = w.weights.view(0, p[1], p[2], j);
          const auto at = static_cast<std::size_t>(j);
          // A score of -inf has weight 0, whatever the other scores.
          const bool right = !r.visible[at]               ? bits_of(x) == 0
                             : !std::isnan(r.weights[at]) ? !std::isnan(x)
                             : std::isnan(bad)            ? std::isnan(x)
                                                          : std::isnan(x) || x == 0;
          wrong += right ? 0 : 1;
        }
        CHECK_MESSAGE(wrong == 0, "row ", p[2], " of head ", p[1], ", isa ", isa(), ", seed ", i, ", ", bad);
        CHECK(std::isnan(r.lse) == std::isnan(w.t.lse.view(0, p[1], p[2])));
      });
    }
  }
}

TEST_CASE("attention_weights: no keys, no rows") {
  for (const AttentionSizes& s :
       {AttentionSizes{.batch = 2, .q_heads = 2, .kv_heads = 1, .q_length = 5, .kv_length = 0, .head_dim = 16},
        AttentionSizes{.batch = 2, .q_heads = 2, .kv_heads = 1, .q_length = 0, .kv_length = 20, .head_dim = 16},
        AttentionSizes{.batch = 0, .q_heads = 2, .kv_heads = 1, .q_length = 5, .kv_length = 20, .head_dim = 16},
        AttentionSizes{.batch = 2, .q_heads = 0, .q_length = 5, .kv_length = 20, .head_dim = 16}}) {
    const Weights w(s, 1);
    const AttentionOptions o = w.t.with_lse({});
    w.run(o);
    attention_key_sums(w.t.q.view, w.t.k.view, w.sums.view, o);
    for_each(w.t.lse.view, [](float x) { CHECK(x == -infinity); });
    for_each(w.sums.view, [](float x) { CHECK(bits_of(x) == 0); });  // of no rows
  }
}

TEST_CASE("attention_weights, attention_key_sums: no rows, no elements of a batch, of 16 bits") {
  std::vector<bfloat16> numbers(64);
  const auto tensor = [&](const std::array<Index, 4>& shape) { return View<bfloat16, 4>(numbers.data(), shape); };
  CHECK_NOTHROW(attention_weights(tensor({1, 1, 0, 8}), tensor({1, 1, 4, 8}), tensor({1, 1, 0, 4})));
  CHECK_NOTHROW(attention_weights(tensor({0, 1, 2, 8}), tensor({0, 1, 4, 8}), tensor({0, 1, 2, 4})));
  CHECK_NOTHROW(
      attention_key_sums(tensor({0, 1, 2, 8}), tensor({0, 1, 4, 8}), View<bfloat16, 3>(numbers.data(), {0, 1, 4})));
  std::fill(numbers.begin(), numbers.end(), bfloat16(7.0f));
  bfloat16* const sums = numbers.data() + 32;
  attention_key_sums(tensor({1, 1, 0, 8}), tensor({1, 1, 4, 8}), View<bfloat16, 3>(sums, {1, 1, 4}));
  CHECK(std::all_of(sums, sums + 4, [](bfloat16 x) { return static_cast<float>(x) == 0; }));
}

TEST_CASE("attention_weights, attention_key_sums: illegal calls") {
  const AttentionSizes s{.batch = 2, .q_heads = 3, .q_length = 5, .kv_length = 7, .head_dim = 8, .value_dim = 6};
  const Weights w(s, 2);
  const auto& t = w.t;
  std::vector<Illegal> calls;
  const auto both = [&](const View<const float, 4>& q, const View<const float, 4>& k, bool of_sums,
                        AttentionOptions o = {}) {
    if (o.lse.data == nullptr) o.lse = t.lse.view;
    of_sums ? attention_key_sums(q, k, w.sums.view, o) : attention_weights(q, k, w.weights.view, o);
  };
  add(calls, "attention_weights", "weights", wrong_outputs(w.weights.view),
      [&](const View<float, 4>& y) { attention_weights(t.q.view, t.k.view, y, t.with_lse({})); });
  add(calls, "attention_key_sums", "sums", wrong_outputs(w.sums.view),
      [&](const View<float, 3>& y) { attention_key_sums(t.q.view, t.k.view, y, t.with_lse({})); });
  const std::vector<Index> starts{0, 5};
  std::vector<std::byte> memory(1 << 20);
  const Tensor<3> sum(t.lse.view.shape);
  const Mask mask({2, 3, 5, 8});
  AttentionOptions varlen, part, workspace, softcap;
  varlen.query_starts = varlen.key_starts = {starts.data(), {2}};
  part.sum = sum.view;
  workspace.workspace = memory;
  softcap.softcap = -1;
  for (const bool sums : {false, true}) {
    const char* function = sums ? "attention_key_sums" : "attention_weights";
    add(calls, function, "q", wrong_views(t.q.view), [&, sums](const View<float, 4>& q) { both(q, t.k.view, sums); });
    add(calls, function, "k", wrong_views(t.k.view), [&, sums](const View<float, 4>& k) { both(t.q.view, k, sums); });
    const auto option = [&](const AttentionOptions& o, const std::vector<std::string>& words) {
      std::vector<std::string> all{function};
      all.insert(all.end(), words.begin(), words.end());
      calls.push_back(
          {std::string(function) + ": " + words[0], [&, o, sums] { both(t.q.view, t.k.view, sums, o); }, all});
    };
    option(varlen, {"query_starts"});
    option(part, {"sum"});
    option(workspace, {"workspace"});
    option(softcap, {"softcap"});
    option(with_mask({}, mask.view), {"mask", "8", "7"});
    AttentionOptions lse;
    lse.lse = with_size(t.lse.view, 2, 4);
    option(lse, {"lse", "4", "5"});
    lse.lse = {sums ? w.sums.view.data : w.weights.view.data, {2, 3, 5}};
    option(lse, {"lse", "overlaps"});
    lse.lse = {t.q.view.data, {2, 3, 5}};
    option(lse, {"lse", "overlaps", "q"});
  }
  calls.push_back({"last stride",
                   [&] { attention_weights(t.q.view, t.k.view, Tensor<4>({2, 3, 5, 7}, layouts()[4]).view); },
                   {"attention_weights", "stride", "3"}});
  calls.push_back({"last stride",
                   [&] { attention_key_sums(t.q.view, t.k.view, Tensor<3>({2, 3, 7}, layouts()[4]).view); },
                   {"attention_key_sums", "stride", "3"}});
  check_illegal(calls, [&] {
    return all_sentinels(w.weights.view) && all_sentinels(w.sums.view) && all_sentinels(t.lse.view) &&
           all_sentinels(sum.view);
  });
  CHECK(calls.size() > 100);
}

}  // namespace
}  // namespace headlane::test
