// attention: NaN, infinities and huge numbers. Masked keys influence nothing; visible ones
// influence the rows to which they are visible.
#include "support/attention_case.hpp"
#include "support/tolerance.hpp"

namespace headlane::test {
namespace {

constexpr Index q_length = 21;

struct Setting {
  Index kv_length, causal_offset, bad_key;
  [[nodiscard]] AttentionSizes sizes() const {
    return {.batch = 2,
            .q_heads = 2,
            .kv_heads = 1,
            .q_length = q_length,
            .kv_length = kv_length,
            .head_dim = 20,
            .value_dim = 24};
  }
  [[nodiscard]] AttentionOptions options() const { return causal(causal_offset); }
  [[nodiscard]] bool reaches(Index row) const { return bad_key <= row + causal_offset; }
};

// The bad key is in the first panel, in the middle, masked for all rows, at the edge of a block,
// and in a later block.
const std::vector<Setting>& settings() {
  static const std::vector<Setting> all{{.kv_length = 40, .causal_offset = 0, .bad_key = 0},
                                        {.kv_length = 40, .causal_offset = 0, .bad_key = 10},
                                        {.kv_length = 40, .causal_offset = 0, .bad_key = 20},
                                        {.kv_length = 40, .causal_offset = 0, .bad_key = 21},
                                        {.kv_length = 40, .causal_offset = 0, .bad_key = 39},
                                        {.kv_length = 40, .causal_offset = 5, .bad_key = 17},
                                        {.kv_length = 40, .causal_offset = -8, .bad_key = 3},
                                        {.kv_length = 530, .causal_offset = 505, .bad_key = 511},
                                        {.kv_length = 530, .causal_offset = 505, .bad_key = 512},
                                        {.kv_length = 530, .causal_offset = 490, .bad_key = 512},
                                        {.kv_length = 1100, .causal_offset = 1020, .bad_key = 600},
                                        {.kv_length = 1100, .causal_offset = 1020, .bad_key = 1030}};
  return all;
}

// Rows of batch element 0 to which the bad key is visible are NaN in the columns of `is_bad`; all
// other elements have the bits of `clean`.
template <class F>
void check_reach(const Setting& s, const AttentionTensors& actual, const AttentionTensors& clean, bool in_scores,
                 F is_bad, const std::string& what) {
  Index wrong = 0, nans = 0, expected_nans = 0;
  for_each_position(actual.out.view.shape, [&](const auto& p) {
    const float x = actual.out.view(p[0], p[1], p[2], p[3]), y = clean.out.view(p[0], p[1], p[2], p[3]);
    const bool expected_nan = p[0] == 0 && s.reaches(p[2]) && is_bad(p[3]);
    nans += std::isnan(x) ? 1 : 0;
    expected_nans += expected_nan ? 1 : 0;
    wrong += (expected_nan ? std::isnan(x) : bits_of(x) == bits_of(y)) ? 0 : 1;
  });
  for_each_position(actual.lse.view.shape, [&](const auto& p) {
    const float x = actual.lse.view(p[0], p[1], p[2]), y = clean.lse.view(p[0], p[1], p[2]);
    const bool expected_nan = p[0] == 0 && s.reaches(p[2]) && in_scores;
    wrong += (expected_nan ? std::isnan(x) : bits_of(x) == bits_of(y)) ? 0 : 1;
  });
  CHECK_MESSAGE(wrong == 0, what, ", isa ", isa(), ", kv ", s.kv_length, ", causal ", s.causal_offset, ", bad key ",
                s.bad_key, ": ", wrong, " wrong, ", nans, " NaNs, expected ", expected_nans);
}

TEST_CASE("attention: a NaN in a key or value reaches exactly the rows to which it is visible") {
  for (const Setting& s : settings()) {
    const AttentionTensors clean(s.sizes(), 1);
    clean.run(s.options());
    for (const Index column : {0, 15, 16, 19}) {
      const AttentionTensors bad_k(s.sizes(), 1), bad_v(s.sizes(), 1);
      bad_k.k.view(0, 0, s.bad_key, column) = nan;
      bad_k.run(s.options());
      check_reach(s, bad_k, clean, true, [](Index) { return true; }, "NaN in k");
      bad_v.v.view(0, 0, s.bad_key, column) = nan;
      bad_v.run(s.options());
      check_reach(s, bad_v, clean, false, [&](Index d) { return d == column; }, "NaN in v");
    }
  }
}

TEST_CASE("attention: NaN or infinity in keys that are masked for all rows changes nothing") {
  for (const Setting& s : settings()) {
    for (const float bad : {nan, infinity, -infinity, 3e38f}) {
      const AttentionTensors clean(s.sizes(), 2), padded(s.sizes(), 2);
      clean.run(s.options());
      const Index visible = std::clamp<Index>(q_length + s.causal_offset, 0, s.kv_length);
      for_each(padded.k.view.slice(2, visible, s.kv_length), [&](float& x) { x = bad; });
      for_each(padded.v.view.slice(2, visible, s.kv_length), [&](float& x) { x = bad; });
      padded.run(s.options());
      CHECK(different_bits(padded.out.view, clean.out.view) == 0);
      CHECK(different_bits(padded.lse.view, clean.lse.view) == 0);
    }
  }
}

TEST_CASE("attention: all keys behind the last visible one of a row may be NaN") {
  const AttentionSizes s{.q_length = q_length, .kv_length = 60, .head_dim = 20, .value_dim = 24};
  const AttentionOptions options = causal(20);
  const AttentionTensors clean(s, 3);
  clean.run(options);
  for (Index row = 0; row < q_length; ++row) {
    const AttentionTensors t(s, 3);
    for_each(t.k.view.slice(2, row + 21, 60), [](float& x) { x = nan; });
    for_each(t.v.view.slice(2, row + 21, 60), [](float& x) { x = nan; });
    t.run(options);
    CHECK(different_bits(t.out.view.slice(2, 0, row + 1), clean.out.view.slice(2, 0, row + 1)) == 0);
    for_each(t.out.view.slice(2, row + 1, q_length), [](float x) { CHECK(std::isnan(x)); });
  }
}

TEST_CASE("attention: a NaN in a query gives NaN in its row and nowhere else") {
  for (const Index kv_length : {1, 16, 40, 600}) {
    for (const Index row : {0, 7, 11, 20}) {
      const AttentionSizes s{
          .q_heads = 2, .q_length = q_length, .kv_length = kv_length, .head_dim = 20, .value_dim = 24};
      const AttentionTensors clean(s, 4), t(s, 4);
      clean.run();
      t.q.view(0, 1, row, 13) = nan;
      t.run();
      for_each(t.out.view.select(1, 1).slice(1, row, row + 1), [](float x) { CHECK(std::isnan(x)); });
      CHECK(std::isnan(t.lse.view(0, 1, row)));
      copy<4>(clean.out.view.slice(2, row, row + 1), t.out.view.slice(2, row, row + 1));
      CHECK(different_bits(t.out.view, clean.out.view) == 0);
    }
  }
}

TEST_CASE("attention: NaN queries without visible keys return 0") {
  const AttentionTensors t({.q_length = q_length, .kv_length = 30, .head_dim = 20, .value_dim = 24}, 5);
  for_each(t.q.view, [](float& x) { x = nan; });
  t.run(causal(-10));
  for_each(t.out.view.slice(2, 0, 10), [](float x) { CHECK(x == 0); });
  for_each(t.out.view.slice(2, 10, q_length), [](float x) { CHECK(std::isnan(x)); });
  for (Index i = 0; i < q_length; ++i) {
    if (i < 10) CHECK(t.lse.view(0, 0, i) == -infinity);
    else CHECK(std::isnan(t.lse.view(0, 0, i)));
  }
}

TEST_CASE("attention: infinity in a value stays in its column; a score of +inf returns NaN, one of -inf has weight 0") {
  for (const Index kv_length : {5, 40, 600}) {
    for (const Index key : {Index{0}, kv_length / 2, kv_length - 1}) {
      const AttentionSizes s{.q_length = q_length, .kv_length = kv_length, .head_dim = 20, .value_dim = 24};
      const AttentionTensors clean(s, 6), in_v(s, 6), positive(s, 6), negative(s, 6), absent(s, 6);
      clean.run();
      in_v.v.view(0, 0, key, 17) = infinity;
      in_v.run();
      for_each_position(in_v.out.view.shape, [&](const auto& p) {
        const float x = in_v.out.view(0, 0, p[2], p[3]);
        CHECK(bits_of(x) == bits_of(p[3] == 17 ? infinity : clean.out.view(0, 0, p[2], p[3])));
      });
      for_each(positive.q.view, [](float& x) { x = std::abs(x) + 1; });
      for_each(negative.q.view, [](float& x) { x = std::abs(x) + 1; });
      positive.k.view(0, 0, key, 3) = infinity;
      positive.run();
      for_each(positive.out.view, [](float x) { CHECK(std::isnan(x)); });
      negative.k.view(0, 0, key, 3) = -infinity;
      negative.run();
      const AttentionReference expected =
          attention_reference(negative.q.view, negative.k.view, negative.v.view, AttentionOptions{});
      Comparison comparison("attention", "a score of -inf", 6);
      std::size_t at = 0;
      for_each_position(negative.out.view.shape, [&](const auto& p) {
        // S is infinite here; that of the finite scores is below 60.
        const double bound = attention_relative_bound(20, kv_length, 60, 60) * expected.weighted[at] + 1e-30;
        comparison.add({p[0], p[1], p[2], p[3]}, negative.out.view(0, 0, p[2], p[3]), expected.out[at], bound);
        ++at;
      });
      comparison.finish();
    }
  }
}

TEST_CASE("attention: rows whose scores are all -inf return 0 and -inf") {
  for (const Index kv_length : {1, 33, 512, 600}) {
    const AttentionTensors t({.q_length = 5, .kv_length = kv_length, .head_dim = 4, .value_dim = 6}, 7);
    for_each(t.q.view, [](float& x) { x = 1e30f; });
    for_each(t.k.view, [](float& x) { x = -1e30f; });
    t.run();
    for_each(t.out.view, [](float x) { CHECK(x == 0); });
    for_each(t.lse.view, [](float x) { CHECK(x == -infinity); });
  }
}

TEST_CASE("attention: one key far above all others has all the weight, at any position") {
  for (const Index kv_length : {5, 33, 70, 200, 540}) {
    for (Index key = 0; key < kv_length; key += kv_length > 200 ? 7 : 1) {
      const AttentionTensors t({.q_length = 7, .kv_length = kv_length, .head_dim = 4, .value_dim = 6}, 9);
      for_each(t.q.view.select(3, 0), [](float& x) { x = 1; });
      t.k.view(0, 0, key, 0) = 300;
      t.run(scaled(1));
      Index wrong = 0;
      for_each_position(t.out.view.shape, [&](const auto& p) {
        wrong += t.out.view(0, 0, p[2], p[3]) == t.v.view(0, 0, key, p[3]) ? 0 : 1;
      });
      CHECK_MESSAGE(wrong == 0, "isa ", isa(), ", kv ", kv_length, ", key ", key);
    }
  }
}

TEST_CASE("attention: a block whose scores are all -inf, or far below or above the others") {
  for (const float level : {-infinity, -200.0f, -80.0f, 80.0f, 200.0f}) {
    for (const Index first : {Index{0}, Index{512}}) {
      const AttentionTensors t({.q_length = 5, .kv_length = 1024, .head_dim = 4, .value_dim = 6}, 8);
      for_each(t.q.view.select(3, 0), [](float& x) { x = 1; });
      for_each(t.k.view.select(3, 0).slice(2, first, first + 512), [&](float& x) { x = level; });
      const AttentionOptions options = scaled(1);
      t.run(options);
      const AttentionReference expected = attention_reference(t.q.view, t.k.view, t.v.view, options);
      Comparison out("attention", "a block apart", 8), lse("attention lse", "a block apart", 8);
      std::size_t at = 0, row = 0;
      for_each_position(t.out.view.shape, [&](const auto& p) {
        const double bound = attention_relative_bound(4, 1024, 250, 250) * expected.weighted[at] + 1e-30;
        out.add({p[2], p[3]}, t.out.view(0, 0, p[2], p[3]), expected.out[at++], bound);
      });
      for_each(t.lse.view, [&](float x) {
        lse.add({static_cast<Index>(row)}, x, expected.rows[row].lse,
                lse_bound(4, 1024, 250, 250, expected.rows[row].lse));
        ++row;
      });
      out.finish();
      lse.finish();
    }
  }
}

}  // namespace
}  // namespace headlane::test
