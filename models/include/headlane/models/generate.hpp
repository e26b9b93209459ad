// How tokens are generated: the options of encoder-decoder models, with the names and meanings of transformers' generate().
#pragma once

#include <headlane/index.hpp>

#include <functional>

namespace headlane::models {

/// When beam search for a sentence ends: as soon as there are num_beams finished candidates (yes); when the best running beam, at its
/// present length, is worse than all of them (no); or at the best length that it may still reach (never).
enum class EarlyStopping : unsigned char { no, yes, never };

struct GenerateProgress {
  Index tokens = 0;              ///< generated so far: steps, summed over sentences
  Index finished_sentences = 0;  ///< of `sentences`
  Index sentences = 0;
};

struct GenerateOptions {
  Index num_beams = 1;          ///< 1: greedy
  Index max_length = 21;        ///< tokens of an output, the start token counted: 2 or more
  Index min_length = 0;         ///< no end of sentence before there are so many, likewise counted
  double length_penalty = 1.0;  ///< of beams: a finished one's score is divided by its length to this power
  EarlyStopping early_stopping = EarlyStopping::no;  ///< of beams
  Index no_repeat_ngram_size = 0;  ///< if not 0: no sequence of so many tokens comes twice in an output
  /// If set: called by the calling thread after each layer of the encoder (tokens is 0 then), and in each step after each
  /// layer of the decoder and each group of sentences. What it throws ends the generation and reaches the caller, so it is
  /// also the place to look for a request to stop: a signal, a deadline, a std::stop_token.
  std::function<void(const GenerateProgress&)> progress = {};
  int num_threads = 0;  ///< maximum number of threads of this call; 0: num_threads() (runtime.hpp)
};

}  // namespace headlane::models
