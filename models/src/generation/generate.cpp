#include "generation/generate.hpp"

#include "core/message.hpp"
#include "generation/beam_search.hpp"
#include "generation/processors.hpp"

#include <headlane/softmax.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <utility>

namespace headlane::models::internal {
namespace {

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

/// Rows whose logits are in memory at a time: each holds the whole vocabulary.
constexpr Index max_rows = 64;

/// A call of generate(): the sentences that are not finished, each with its rows of the decoder.
class Generation {
 public:
  Generation(Decoder& decoder, Index sentences, const GenerationTokens& tokens, const GenerateOptions& options,
             GenerateProgress& progress, const std::function<void()>& poll)
      : decoder_(decoder),
        tokens_(tokens),
        options_(options),
        progress_(progress),
        poll_(poll),
        results_(at(sentences)),
        best_(BeamSearch::candidates(options, tokens.eos)) {
    for (Index i = 0; i < sentences; ++i) active_.push_back({i, BeamSearch(options, tokens.eos, tokens.start)});
    group_ = std::clamp<Index>(max_rows / options.num_beams, 1, sentences);
    logits_ = std::make_unique_for_overwrite<float[]>(at(group_ * options.num_beams * tokens.vocabulary));
  }

  std::vector<std::vector<Index>> run() {
    for (rows_ = 1; !active_.empty(); rows_ = options_.num_beams) {
      step();
      poll_();
    }
    return std::move(results_);
  }

 private:
  struct Sentence {
    Index number;  // -1: finished
    BeamSearch search;
  };

  void step() {
    ids_.clear();
    for (const Sentence& sentence : active_)
      for (Index beam = 0; beam < rows_; ++beam) ids_.push_back(sentence.search.tokens(beam).back());
    const View<const float, 3> hidden = decoder_.step(ids_);
    parents_.clear();
    const Index sentences = std::ssize(active_);
    for (Index first = 0; first < sentences; first += group_) {
      const Index last = std::min(first + group_, sentences);
      choose(hidden.slice(0, first * rows_, last * rows_), first, last);
      if (last < sentences) poll_();
    }
    std::erase_if(active_, [](const Sentence& sentence) { return sentence.number < 0; });
    if (!active_.empty()) decoder_.reorder(parents_);
  }

  /// Chooses the next tokens of the sentences first … last-1, from their hidden states.
  void choose(View<const float, 3> hidden, Index first, Index last) {
    const View<float, 3> logits(logits_.get(), {hidden.shape[0], 1, tokens_.vocabulary});
    decoder_.logits(hidden, logits);
    if (options_.num_beams > 1) softmax(logits, logits, {.log = true, .num_threads = options_.num_threads});
    float* row = logits.data;
    for (Index i = first; i < last; ++i) {
      Sentence& sentence = active_[at(i)];
      best_.clear();
      // In the first step all beams are equal and share one row.
      for (Index beam = 0; beam < options_.num_beams; ++beam) {
        const std::span<float> scores(row, at(tokens_.vocabulary));
        if (beam < rows_) mask_forbidden(scores, sentence.search.tokens(beam), tokens_.eos, options_);
        best_.offer(beam, sentence.search.score(beam), scores);
        if (beam + 1 < rows_) row += tokens_.vocabulary;
      }
      row += tokens_.vocabulary;
      advance(sentence, i * rows_);
    }
  }

  /// Appends the best continuations to a sentence whose rows begin at `row`.
  void advance(Sentence& sentence, Index row) {
    ++progress_.tokens;
    if (sentence.search.advance(best_.best())) {
      for (Index beam = 0; beam < options_.num_beams; ++beam)
        parents_.push_back(row + (rows_ == 1 ? 0 : sentence.search.parent(beam)));
      return;
    }
    results_[at(sentence.number)] = sentence.search.result();
    sentence.number = -1;
    ++progress_.finished_sentences;
  }

  Decoder& decoder_;
  const GenerationTokens& tokens_;
  const GenerateOptions& options_;
  GenerateProgress& progress_;
  const std::function<void()>& poll_;
  std::vector<Sentence> active_;
  std::vector<std::vector<Index>> results_;
  std::vector<Index> ids_, parents_;
  Candidates best_;
  Index group_ = 1;  // sentences whose logits are in memory at a time
  Index rows_ = 1;   // of a sentence in this step
  std::unique_ptr<float[]> logits_;
};

}  // namespace

void check_options(const char* function, const GenerateOptions& options, const GenerationTokens& tokens) {
  using headlane::internal::require;
  const auto check = [&](const char* name, Index value, Index min) {
    require(value >= min, function, ": ", name, " is ", value, ", not ", min, " or more");
  };
  check("num_beams", options.num_beams, 1);
  check("max_length", options.max_length, 2);
  check("min_length", options.min_length, 0);
  check("no_repeat_ngram_size", options.no_repeat_ngram_size, 0);
  check("num_threads", options.num_threads, 0);
  require(std::abs(options.length_penalty) <= 100, function,  // false for NaN
          ": length_penalty is ", std::to_string(options.length_penalty), ", not -100 to 100");
  const Index max_beams = std::min<Index>(1024, tokens.vocabulary / (1 + std::max<Index>(1, std::ssize(tokens.eos))));
  require(options.num_beams <= std::max<Index>(1, max_beams), function, ": num_beams is ", options.num_beams,
          ", more than ", max_beams);
}

std::vector<std::vector<Index>> generate(Decoder& decoder, Index sentences, const GenerationTokens& tokens,
                                         const GenerateOptions& options, GenerateProgress& progress,
                                         const std::function<void()>& poll) {
  return Generation(decoder, sentences, tokens, options, progress, poll).run();
}

}  // namespace headlane::models::internal
