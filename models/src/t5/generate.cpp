#include "t5/generate.hpp"

#include "generation/beam_search.hpp"
#include "generation/processors.hpp"
#include "t5/decoder.hpp"

#include <headlane/softmax.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>

namespace headlane::models::internal {
namespace {

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

/// Rows whose logits are held at a time: those of the whole vocabulary are large.
constexpr Index rows_at_a_time = 64;

[[noreturn]] void refuse(const std::string& message) { throw std::invalid_argument("T5::generate: " + message); }

void check_options(const GenerateOptions& o, const T5Config& config) {
  const auto least = [](const char* name, Index value, Index low) {
    if (value < low)
      refuse(std::string(name) + " is " + std::to_string(value) + ", not " + std::to_string(low) + " or more");
  };
  least("num_beams", o.num_beams, 1);
  least("max_length", o.max_length, 2);
  least("min_length", o.min_length, 0);
  least("no_repeat_ngram_size", o.no_repeat_ngram_size, 0);
  least("num_threads", o.num_threads, 0);
  if (!(std::abs(o.length_penalty) <= 100))  // nor NaN
    refuse("length_penalty is " + std::to_string(o.length_penalty) + ", not -100 to 100");
  const Index most =
      std::min<Index>(1024, config.vocab_size / (1 + std::max<Index>(1, std::ssize(config.eos_token_ids))));
  if (o.num_beams > std::max<Index>(1, most))
    refuse("num_beams is " + std::to_string(o.num_beams) + ", more than " + std::to_string(most));
}

/// One call: the sentences that are not finished, each with its rows of the decoder.
class Generation {
 public:
  /// Keeps `progress` up to date, which poll() tells.
  Generation(const T5Model& model, const T5Config& config, std::span<const std::vector<Index>> inputs,
             const GenerateOptions& options, GenerateProgress& progress, const std::function<void()>& poll)
      : model_(model),
        config_(config),
        options_(options),
        progress_(progress),
        poll_(poll),
        results_(inputs.size()),
        best_(BeamSearch::candidates(options, config.eos_token_ids)) {
    for (Index i = 0; i < std::ssize(inputs); ++i)
      active_.push_back({i, BeamSearch(options, config.eos_token_ids, config.decoder_start_token_id)});
    group_ = std::clamp<Index>(rows_at_a_time / options.num_beams, 1, std::ssize(inputs));
    logits_ = std::make_unique_for_overwrite<float[]>(at(group_ * options.num_beams * config.vocab_size));
  }

  std::vector<std::vector<Index>> run(T5Decoder& decoder) {
    for (beams_ = 1; !active_.empty(); beams_ = options_.num_beams) {
      step(decoder);
      poll_();
    }
    return std::move(results_);
  }

 private:
  struct Sentence {
    Index number;
    BeamSearch search;
  };

  void step(T5Decoder& decoder) {
    ids_.clear();
    for (const Sentence& sentence : active_)
      for (Index beam = 0; beam < beams_; ++beam) ids_.push_back(sentence.search.tokens(beam).back());
    const View<const float, 3> hidden = decoder.step(ids_);
    parents_.clear();
    const Index sentences = std::ssize(active_);
    for (Index first = 0; first < sentences; first += group_) {
      const Index last = std::min(first + group_, sentences);
      choose(hidden.slice(0, first * beams_, last * beams_), first, last);
      if (last < sentences) poll_();
    }
    std::erase_if(active_, [](const Sentence& sentence) { return sentence.number < 0; });
    if (!active_.empty()) decoder.reorder(parents_);
  }

  /// The next tokens of some sentences, which have these hidden states.
  void choose(View<const float, 3> hidden, Index first, Index last) {
    const Index vocabulary = config_.vocab_size;
    const View<float, 3> logits(logits_.get(), {hidden.shape[0], 1, vocabulary});
    model_.logits(hidden, logits, options_.num_threads);
    if (options_.num_beams > 1) softmax(logits, logits, {.log = true, .num_threads = options_.num_threads});
    float* row = logits.data;
    for (Index i = first; i < last; ++i) {
      Sentence& sentence = active_[at(i)];
      best_.clear();
      // In the first step all beams are the same: one row stands for them.
      for (Index beam = 0; beam < options_.num_beams; ++beam) {
        const std::span<float> scores(row, at(vocabulary));
        if (beam < beams_) forbid(scores, sentence.search.tokens(beam), config_.eos_token_ids, options_);
        best_.offer(beam, sentence.search.score(beam), scores);
        if (beam + 1 < beams_) row += vocabulary;
      }
      row += vocabulary;
      advance(sentence, i * beams_);
    }
  }

  void advance(Sentence& sentence, Index row) {
    ++progress_.tokens;
    if (sentence.search.advance(best_.best())) {
      for (Index beam = 0; beam < options_.num_beams; ++beam)
        parents_.push_back(row + (beams_ == 1 ? 0 : sentence.search.parent(beam)));
      return;
    }
    results_[at(sentence.number)] = sentence.search.result();
    sentence.number = -1;
    ++progress_.finished_sentences;
  }

  const T5Model& model_;
  const T5Config& config_;
  const GenerateOptions& options_;
  GenerateProgress& progress_;
  const std::function<void()>& poll_;
  std::vector<Sentence> active_;
  std::vector<std::vector<Index>> results_;
  std::vector<Index> ids_, parents_;
  Candidates best_;
  Index group_ = 1;  // sentences whose logits are held at a time
  Index beams_ = 1;  // rows of a sentence
  std::unique_ptr<float[]> logits_;
};

}  // namespace

void check_ids(const char* function, const char* what, std::span<const Index> ids, const T5Config& config) {
  const auto refuse_ids = [&](const std::string& message) {
    throw std::invalid_argument(std::string(function) + ": " + what + " " + message);
  };
  if (ids.empty()) refuse_ids("has no tokens");
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= config.vocab_size)
      refuse_ids("has the token " + std::to_string(ids[i]) + " at " + std::to_string(i) + ", not 0 to " +
                 std::to_string(config.vocab_size - 1));
}

std::vector<std::vector<Index>> generate(const T5Model& model, const T5Config& config,
                                         std::span<const std::vector<Index>> inputs, const GenerateOptions& options) {
  check_options(options, config);
  std::vector<Index> ids, starts{0};
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_ids("T5::generate", ("input " + std::to_string(i)).c_str(), inputs[i], config);
    ids.insert(ids.end(), inputs[i].begin(), inputs[i].end());
    starts.push_back(std::ssize(ids));
  }
  if (inputs.empty()) return {};
  std::vector<float> memory(ids.size() * at(config.d_model));
  const View<float, 3> states(memory.data(), {1, std::ssize(ids), config.d_model});
  GenerateProgress progress{.sentences = std::ssize(inputs)};
  const std::function<void()> poll = [&] {
    if (options.progress) options.progress(progress);
  };
  model.encode(ids, starts, states, options.num_threads, poll);
  T5Decoder decoder(model, config, states, starts, options.num_threads, poll);
  return Generation(model, config, inputs, options, progress, poll).run(decoder);
}

}  // namespace headlane::models::internal
