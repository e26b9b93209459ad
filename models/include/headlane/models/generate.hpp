// GenerateOptions: how tokens are generated, with the names and semantics of generate() in
// Hugging Face transformers.
#pragma once

#include <headlane/index.hpp>

#include <functional>

namespace headlane::models {

/// When beam search for a sentence stops:
///   yes    as soon as there are num_beams finished candidates
///   no     when the best running beam, at its present length, scores below all of them
///   never  when it scores below all of them even at the best length that it can still reach
enum class EarlyStopping : unsigned char { no, yes, never };

struct GenerateProgress {
  Index tokens = 0;  ///< generated so far: steps, summed over sentences
  Index finished_sentences = 0;
  Index sentences = 0;
};

struct GenerateOptions {
  Index num_beams = 1;                               ///< 1: greedy search
  Index max_length = 21;                             ///< of an output, including the start token; at least 2
  Index min_length = 0;                              ///< no eos before this length, including the start token
  double length_penalty = 1.0;                       ///< scores are divided by length^length_penalty
  EarlyStopping early_stopping = EarlyStopping::no;  ///< beam search only
  Index no_repeat_ngram_size = 0;                    ///< if not 0: no n-gram of this size occurs twice
  /// If given: called by the calling thread after each layer of the encoder (tokens is 0 then),
  /// and in each step after each layer of the decoder and each group of sentences. An exception
  /// ends the generation and propagates to the caller. Use it to poll for a signal, a deadline, a
  /// std::stop_token.
  std::function<void(const GenerateProgress&)> progress = {};
  int num_threads = 0;  ///< maximum for this call; 0: num_threads() (runtime.hpp)
};

}  // namespace headlane::models
