// Greedy and beam search of T5 beside a plain reading of what transformers does, on logits of all
// positions at once.
#include "t5_case.hpp"

#include <doctest/doctest.h>
#include <headlane/models/t5.hpp>
#include <headlane/softmax.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

using namespace headlane;
using namespace headlane::models;
using namespace headlane::test;

namespace {

using Tokens = std::vector<Index>;

struct Hypothesis {
  Tokens tokens;
  float score = 0;
  bool flag = false;  // of candidates: ends here; of results: really finished
};

std::vector<std::size_t> top(const std::vector<Hypothesis>& all, std::size_t count) {
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // Not stable_sort: with GCC 12's library clang 19 warns of what that calls.
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    return all[a].score != all[b].score ? all[a].score > all[b].score : a < b;
  });
  order.resize(count);
  return order;
}

class Oracle {
 public:
  Oracle(const T5& t5, const Tokens& input, const GenerateOptions& options) : t5_(t5), input_(input), o_(options) {}

  Tokens greedy() {
    Tokens tokens{t5_.config().decoder_start_token_id};
    while (std::ssize(tokens) < o_.max_length && (tokens.size() == 1 || !is_end(tokens.back()))) {
      const auto scores = scores_of(tokens, false);
      tokens.push_back(std::ranges::max_element(scores) - scores.begin());
    }
    return tokens;
  }

  Tokens beams() {
    const auto n = static_cast<std::size_t>(o_.num_beams);
    const std::size_t keep = n * (1 + t5_.config().eos_token_ids.size());
    std::vector<Hypothesis> running(n, {{t5_.config().decoder_start_token_id}, -1e9f, false});
    running[0].score = 0;
    std::vector<Hypothesis> results(n, {{t5_.config().decoder_start_token_id}, -1e9f, false});
    bool improvable = true;
    for (Index length = 1;; ++length) {
      std::vector<Hypothesis> candidates;
      for (const Hypothesis& beam : running) {
        const auto scores = scores_of(beam.tokens, true);
        for (std::size_t token = 0; token < scores.size(); ++token) {
          candidates.push_back({beam.tokens, scores[token] + beam.score, false});
          candidates.back().tokens.push_back(static_cast<Index>(token));
          candidates.back().flag = is_end(static_cast<Index>(token)) || length + 1 >= o_.max_length;
        }
      }
      std::vector<Hypothesis> best, open;
      for (const std::size_t i : top(candidates, keep)) best.push_back(candidates[i]);
      open = best;
      for (Hypothesis& h : open) h.score += h.flag ? -1e9f : 0.0f;
      running.clear();
      for (const std::size_t i : top(open, n)) running.push_back(open[i]);
      std::vector<Hypothesis> merged = results;
      const bool full = all_finished(results) && o_.early_stopping == EarlyStopping::yes;
      for (std::size_t i = 0; i < keep; ++i) {
        Hypothesis h = best[i];
        const bool finishes = h.flag && i < n;
        h.score /= power(length);
        if (full) h.score += -1e9f;
        if (!improvable) h.score += -1e9f;
        if (!finishes) h.score += -1e9f;
        h.flag = finishes;
        merged.push_back(h);
      }
      results.clear();
      for (const std::size_t i : top(merged, n)) results.push_back(merged[i]);
      const bool longest = o_.early_stopping == EarlyStopping::never && o_.length_penalty > 0;
      const float possible = running[0].score / power(longest ? o_.max_length - 1 : length);
      bool better = false;
      for (const Hypothesis& result : results)
        better = better || possible > (result.flag ? results.back().score : -1e9f);
      improvable = improvable && better;
      const bool stop = all_finished(results) && o_.early_stopping == EarlyStopping::yes;
      const bool ended = std::ranges::all_of(best, [](const Hypothesis& h) { return h.flag; });
      if (!improvable || stop || ended) return results[0].tokens;
    }
  }

 private:
  static bool all_finished(const std::vector<Hypothesis>& results) {
    return std::ranges::all_of(results, [](const Hypothesis& h) { return h.flag; });
  }
  [[nodiscard]] bool is_end(Index token) const { return std::ranges::count(t5_.config().eos_token_ids, token) > 0; }
  [[nodiscard]] float power(Index length) const {
    return static_cast<float>(std::pow(static_cast<double>(length), o_.length_penalty));
  }

  std::vector<float> scores_of(const Tokens& tokens, bool log) {
    auto [place, made] = known_.try_emplace(tokens);
    if (!made) return place->second;
    const std::vector<float> all = t5_.logits(input_, tokens);
    std::vector<float> row(all.end() - t5_.config().vocab_size, all.end());
    const View<float, 1> view(row.data(), {std::ssize(row)});
    if (log) softmax(view, view, {.log = true});
    if (std::ssize(tokens) < o_.min_length)
      for (const Index token : t5_.config().eos_token_ids) row[static_cast<std::size_t>(token)] = -infinity;
    std::map<Tokens, std::vector<Index>> grams;
    const Index n = o_.no_repeat_ngram_size;
    for (Index i = 0; n > 0 && i + n <= std::ssize(tokens); ++i)
      grams[Tokens(tokens.begin() + i, tokens.begin() + i + n - 1)].push_back(
          tokens[static_cast<std::size_t>(i + n - 1)]);
    if (n > 0 && std::ssize(tokens) + 1 >= n)
      for (const Index token : grams[Tokens(tokens.end() - (n - 1), tokens.end())])
        row[static_cast<std::size_t>(token)] = -infinity;
    return place->second = row;
  }

  const T5& t5_;
  const Tokens& input_;
  const GenerateOptions& o_;
  std::map<Tokens, std::vector<float>> known_;
};

}  // namespace

TEST_CASE("greedy search and beam search are what they are by definition") {
  Index compared = 0, ended = 0;
  for (const T5Case& c : {T5Case{}, T5Case{.gated = true, .own_head = true}}) {
    const Folder folder;
    write_t5(folder, c);
    const T5 t5(folder.path());
    const auto inputs = t5_inputs();
    std::vector<GenerateOptions> all;
    for (const Index beams : {1, 2, 4})
      for (const EarlyStopping early : {EarlyStopping::no, EarlyStopping::yes, EarlyStopping::never})
        for (const double penalty : {1.0, 0.0, 2.5, -1.0}) {
          if (beams == 1 && (early != EarlyStopping::no || penalty != 1.0)) continue;
          const GenerateOptions options{
              .num_beams = beams, .max_length = 12, .length_penalty = penalty, .early_stopping = early};
          all.push_back(options);
          if (penalty == 1.0 && early != EarlyStopping::never)
            for (const Index n : {0, 1, 2, 3})
              for (const Index shortest : {0, 5, 20}) {
                all.push_back(options);
                all.back().min_length = shortest;
                all.back().no_repeat_ngram_size = n;
              }
        }
    for (const GenerateOptions& options : all) {
      const auto outputs = t5.generate(inputs, options);
      for (std::size_t i = 0; i < inputs.size(); i += 2) {
        INFO(options.num_beams, " ", options.length_penalty, " ", static_cast<int>(options.early_stopping), " ",
             options.min_length, " ", options.no_repeat_ngram_size, " ", i);
        Oracle oracle(t5, inputs[i], options);
        CHECK(outputs[i] == (options.num_beams == 1 ? oracle.greedy() : oracle.beams()));
        ++compared;
        ended += std::ssize(outputs[i]) < options.max_length ? 1 : 0;
      }
    }
  }
  MESSAGE(compared, " outputs, ", ended, " of them ended by </s>");
  CHECK(ended > compared / 10);
  CHECK(ended < compared * 9 / 10);
}
