// Beam search on handmade candidates: order, ties, finished outputs, end of the search.
#include "generation/beam_search.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <string>

using namespace headlane;
using namespace headlane::models;
using namespace headlane::models::internal;

namespace {

using Tokens = std::vector<Index>;
using List = std::vector<Candidate>;

const Tokens eos{1};

std::vector<Tokens> running(const BeamSearch& search) {
  std::vector<Tokens> result;
  for (Index beam = 0; beam < search.beams(); ++beam)
    result.emplace_back(search.tokens(beam).begin(), search.tokens(beam).end());
  return result;
}

/// Two beams, 9 and 8, after a first step that ends nothing.
BeamSearch begun(const GenerateOptions& options, float first = -1, float second = -2) {
  BeamSearch search(options, eos, 0);
  CHECK(search.advance(List{{first, 0, 9}, {second, 0, 8}, {-5, 0, 7}, {-6, 0, 6}}));
  return search;
}

}  // namespace

TEST_CASE("candidates: twice the beams, and one more for each token that ends") {
  const Tokens none, two{1, 2}, four{1, 2, 3, 4};
  CHECK(BeamSearch::candidates({.num_beams = 1}, four) == 1);
  CHECK(BeamSearch::candidates({.num_beams = 2}, none) == 4);
  CHECK(BeamSearch::candidates({.num_beams = 2}, eos) == 4);
  CHECK(BeamSearch::candidates({.num_beams = 3}, two) == 9);
  CHECK(BeamSearch::candidates({.num_beams = 3}, four) == 15);
}

TEST_CASE("one beam: the best, until it ends or is as long as may be") {
  const GenerateOptions options{.max_length = 4};
  BeamSearch search(options, eos, 5);
  CHECK(search.advance(List{{-1, 0, 7}}));
  CHECK(search.length() == 2);
  CHECK(search.advance(List{{-1, 0, 8}}));
  CHECK_FALSE(search.advance(List{{-1, 0, 9}}));
  CHECK(search.result() == Tokens{5, 7, 8, 9});
  BeamSearch other(options, eos, 5);
  CHECK_FALSE(other.advance(List{{-1, 0, 1}}));
  CHECK(other.result() == Tokens{5, 1});
}

TEST_CASE("at first the other beams have no chance") {
  const GenerateOptions options{.num_beams = 3};
  const BeamSearch search(options, eos, 5);
  CHECK(search.score(0) == 0.0f);
  CHECK(search.score(1) == -1e9f);
  CHECK(search.score(2) == -1e9f);
  CHECK(search.length() == 1);
  CHECK(running(search) == std::vector<Tokens>{{5}, {5}, {5}});
}

TEST_CASE("the best that do not end run on, of equal ones the earlier; those that end fill what is left") {
  const GenerateOptions options{.num_beams = 2, .max_length = 30};
  BeamSearch search = begun(options);
  CHECK(running(search) == std::vector<Tokens>{{0, 9}, {0, 8}});
  CHECK(search.score(1) == -2.0f);
  CHECK(search.advance(List{{-3, 1, 4}, {-3, 0, 6}, {-3, 1, 3}, {-3, 0, 2}}));
  CHECK(running(search) == std::vector<Tokens>{{0, 8, 4}, {0, 9, 6}});
  CHECK(search.parent(0) == 1);
  CHECK(search.parent(1) == 0);
  // With -1e9 these differ no more: their order decides again.
  CHECK_FALSE(search.advance(List{{-3, 1, 1}, {-4, 0, 1}, {-5, 0, 7}, {-6, 1, 1}}));  // two results, and better
  CHECK(running(search) == std::vector<Tokens>{{0, 8, 4, 7}, {0, 9, 6, 1}});
  CHECK(search.score(0) == -5.0f);
  CHECK(search.score(1) == -3.0f + -1e9f);
}

TEST_CASE("many equal candidates keep their order") {
  const GenerateOptions options{.num_beams = 20, .max_length = 30};
  BeamSearch search(options, eos, 0);
  List best;
  for (Index i = 0; i < 40; ++i) best.push_back({-2, i % 7, i % 3 == 0 ? Index{1} : 100 + i});
  CHECK(search.advance(best));
  std::vector<Tokens> wanted;
  for (const Candidate& candidate : best)
    if (candidate.token != 1 && wanted.size() < 20) wanted.push_back({0, candidate.token});
  CHECK(running(search) == wanted);
}

TEST_CASE("only the first num_beams candidates finish, and of equal results the earlier stays first") {
  const GenerateOptions options{.num_beams = 2, .max_length = 30, .early_stopping = EarlyStopping::yes};
  BeamSearch search = begun(options);
  CHECK(search.advance(List{{-2, 1, 5}, {-4, 1, 1}, {-4, 0, 1}, {-9, 0, 4}}));  // one finished
  BeamSearch both = begun(options);
  CHECK_FALSE(both.advance(List{{-4, 1, 1}, {-4, 0, 1}, {-8, 0, 5}, {-9, 0, 4}}));
  CHECK(both.result() == Tokens{0, 8, 1});
}

TEST_CASE("a better result goes before, and a worse one than all is dropped") {
  const GenerateOptions options{.num_beams = 2, .max_length = 30, .length_penalty = 0.0};
  BeamSearch search = begun(options);
  CHECK(search.advance(List{{-4, 0, 1}, {-1, 1, 5}, {-2, 1, 4}, {-3, 0, 6}}));
  CHECK(search.advance(List{{-3, 0, 1}, {-2, 0, 5}, {-2, 1, 4}, {-3, 0, 6}}));  // full
  CHECK_FALSE(search.advance(List{{-5, 0, 1}, {-5, 0, 7}, {-6, 1, 4}, {-7, 0, 6}}));
  CHECK(search.result() == Tokens{0, 8, 5, 1});
}

TEST_CASE("scores are divided by the length without the start token, to the power of the penalty") {
  // Finished with 2 tokens and -4: -2 a token. Then one of 3 tokens: better from -6 on.
  for (const float score : {-5.9f, -6.1f}) {
    const GenerateOptions options{.num_beams = 2, .max_length = 30, .early_stopping = EarlyStopping::yes};
    BeamSearch search = begun(options);
    CHECK(search.advance(List{{-3, 0, 5}, {-4, 0, 1}, {-5, 1, 4}, {-6, 1, 3}}));
    CHECK_FALSE(search.advance(List{{score, 0, 1}, {-7, 0, 5}, {-7, 1, 4}, {-8, 1, 3}}));
    CHECK(search.result() == (score > -6 ? Tokens{0, 9, 5, 1} : Tokens{0, 9, 1}));
  }
}

namespace {

/// Both places finished with -6 after 2 tokens; then whether a running beam of this score, of 2
/// tokens, goes on.
bool goes_on(const GenerateOptions& options, float score) {
  BeamSearch search = begun(options);
  return search.advance(List{{-6, 0, 1}, {-6, 1, 1}, {score, 0, 5}, {score, 1, 4}});
}

}  // namespace

TEST_CASE("over when no running beam can be better than the worst result, at its length or at the longest") {
  const auto options = [](EarlyStopping early, double penalty) {
    return GenerateOptions{.num_beams = 2, .max_length = 13, .length_penalty = penalty, .early_stopping = early};
  };
  using enum EarlyStopping;
  // At the present length of 2: better than -6.
  for (const double penalty : {1.0, 2.0, -1.0})
    for (const EarlyStopping early : {no, never}) {
      if (early == never && penalty > 0) continue;
      INFO(penalty, " ", static_cast<int>(early));
      CHECK(goes_on(options(early, penalty), -5.9f));
      CHECK_FALSE(goes_on(options(early, penalty), -6.0f));
      CHECK_FALSE(goes_on(options(early, penalty), -6.1f));
    }
  CHECK_FALSE(goes_on(options(never, 0.0), -6.0f));
  CHECK(goes_on(options(never, 0.0), -5.9f));
  // At the longest, of 12: better than -3 · 12.
  CHECK(goes_on(options(never, 1.0), -35.9f));
  CHECK_FALSE(goes_on(options(never, 1.0), -36.0f));
  CHECK_FALSE(goes_on(options(never, 1.0), -36.1f));
  CHECK_FALSE(goes_on(options(yes, 1.0), -1.0f));
}

TEST_CASE("while not all places are finished it goes on, unless there is nothing left") {
  for (const EarlyStopping early : {EarlyStopping::no, EarlyStopping::yes, EarlyStopping::never}) {
    const GenerateOptions options{.num_beams = 2, .max_length = 13, .early_stopping = early};
    BeamSearch search = begun(options);
    CHECK(search.advance(List{{-1, 0, 1}, {-60, 1, 5}, {-61, 0, 5}, {-62, 1, 4}}));
    BeamSearch none = begun(options);
    CHECK_FALSE(none.advance(List{{-1, 0, 1}, {-60, 1, 1}, {-61, 0, 1}, {-62, 1, 1}}));
  }
}

TEST_CASE("at max_length every token ends") {
  const GenerateOptions options{.num_beams = 2, .max_length = 3};
  BeamSearch search = begun(options);
  CHECK_FALSE(search.advance(List{{-3, 1, 4}, {-3, 0, 6}, {-3, 1, 3}, {-3, 0, 2}}));
  CHECK(search.result() == Tokens{0, 8, 4});
  const GenerateOptions longer{.num_beams = 2, .max_length = 4};
  BeamSearch other = begun(longer);
  CHECK(other.advance(List{{-3, 1, 4}, {-3, 0, 6}, {-3, 1, 3}, {-3, 0, 2}}));
}
