// The parts of the search: selection of the best candidates with ties, and masked tokens.
#include "generation/candidates.hpp"
#include "generation/processors.hpp"
#include "support/data.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <tuple>

using namespace headlane;
using namespace headlane::models;
using namespace headlane::models::internal;
using namespace headlane::test;

TEST_CASE("the best candidates are those of a stable sort, with ties, infinities and NaN") {
  Random random(3);
  for (const Index vocabulary : {1, 5, 127, 128, 129, 1000})
    for (const Index count : {1, 2, 8, 40})
      for (const Index spread : {2, 50, 1000000}) {
        Candidates candidates(count);
        std::vector<Candidate> all;
        for (Index beam = 0; beam < 4; ++beam) {
          const auto score = static_cast<float>(-random.integer(0, 30));
          std::vector<float> logits;
          for (Index i = 0; i < vocabulary; ++i) {
            const Index kind = random.integer(0, 40);
            const auto value = static_cast<float>(random.integer(-spread, spread));
            logits.push_back(kind == 0 ? -infinity : kind == 1 ? nan : value);
            all.push_back({kind < 2 ? -infinity : value + score, beam, i});
          }
          candidates.offer(beam, score, logits);
        }
        std::ranges::sort(all, [](const Candidate& a, const Candidate& b) {
          return std::tuple(-a.score, a.beam, a.token) < std::tuple(-b.score, b.beam, b.token);
        });
        const auto best = candidates.best();
        REQUIRE(std::ssize(best) == std::min(count, 4 * vocabulary));
        for (std::size_t i = 0; i < best.size(); ++i) {
          CHECK(best[i].score == all[i].score);
          CHECK(best[i].beam == all[i].beam);
          CHECK(best[i].token == all[i].token);
        }
      }
}

TEST_CASE("the best token is found wherever it stands") {
  for (const std::size_t vocabulary : {1u, 127u, 128u, 129u, 255u, 256u, 257u, 400u})
    for (std::size_t token = 0; token < vocabulary; ++token) {
      std::vector<float> logits(vocabulary, 1.0f);
      logits[token] = 2;
      Candidates candidates(1);
      candidates.offer(0, 0.0f, std::vector<float>(3, 1.5f));  // so that whole blocks may be passed over
      candidates.offer(1, 0.0f, logits);
      REQUIRE(candidates.best().size() == 1);
      CHECK(candidates.best()[0].token == static_cast<Index>(token));
      CHECK(candidates.best()[0].beam == 1);
    }
}

TEST_CASE("tokens that may not follow") {
  const std::vector<Index> tokens{0, 3, 4, 3, 5, 3}, ends{1, 2};
  const auto forbidden = [&](const GenerateOptions& options) {
    std::vector<float> logits(8, 0.0f);
    mask_forbidden(logits, tokens, ends, options);
    std::vector<Index> result;
    for (Index i = 0; i < 8; ++i)
      if (logits[static_cast<std::size_t>(i)] == -infinity) result.push_back(i);
    return result;
  };
  using List = std::vector<Index>;
  CHECK(forbidden({}) == List{});
  CHECK(forbidden({.min_length = 6}) == List{});
  CHECK(forbidden({.min_length = 7}) == List{1, 2});
  CHECK(forbidden({.no_repeat_ngram_size = 1}) == List{0, 3, 4, 5});
  CHECK(forbidden({.no_repeat_ngram_size = 2}) == List{4, 5});
  CHECK(forbidden({.no_repeat_ngram_size = 3}) == List{});
  CHECK(forbidden({.no_repeat_ngram_size = 6}) == List{});
  CHECK(forbidden({.no_repeat_ngram_size = 1000}) == List{});
}

TEST_CASE("n-grams of outputs that are just as long, and shorter ones") {
  const auto forbidden = [](const std::vector<Index>& tokens, Index n) {
    std::vector<float> logits(8, 0.0f);
    mask_forbidden(logits, tokens, {}, {.no_repeat_ngram_size = n});
    std::vector<Index> result;
    for (Index i = 0; i < 8; ++i)
      if (logits[static_cast<std::size_t>(i)] == -infinity) result.push_back(i);
    return result;
  };
  using List = std::vector<Index>;
  for (Index n = 1; n < 6; ++n)
    for (Index length = 1; length < 8; ++length)
      CHECK(forbidden(List(static_cast<std::size_t>(length), 4), n) == (length < n ? List{} : List{4}));
  CHECK(forbidden({3, 5}, 2) == List{});
  CHECK(forbidden({3, 5, 3}, 2) == List{5});
  CHECK(forbidden({3, 5, 6, 3, 5}, 3) == List{6});
  CHECK(forbidden({3, 5, 6, 3}, 3) == List{});
}

TEST_CASE("no end before min_length, the start token counted") {
  const std::vector<Index> ends{1, 2};
  for (Index length = 1; length < 5; ++length)
    for (Index least = 0; least < 6; ++least) {
      std::vector<float> logits(4, 0.0f);
      mask_forbidden(logits, std::vector<Index>(static_cast<std::size_t>(length), 3), ends, {.min_length = least});
      const float wanted = length < least ? -infinity : 0.0f;
      CHECK(logits == std::vector<float>{0, wanted, wanted, 0});
    }
}
