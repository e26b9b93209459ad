// Greedy and beam search over the outputs of a decoder, for several sentences at once.
#pragma once

#include "generation/decoder.hpp"

#include <headlane/models/generate.hpp>

#include <functional>
#include <vector>

namespace headlane::models::internal {

/// Throws std::invalid_argument, in the name of `function`, for an option out of range.
void check_options(const char* function, const GenerateOptions& options, const GenerationTokens& tokens);

/// The output of each sentence, with the options checked. Updates `progress` and calls `poll`
/// after each step and each group of sentences.
std::vector<std::vector<Index>> generate(Decoder& decoder, Index sentences, const GenerationTokens& tokens,
                                         const GenerateOptions& options, GenerateProgress& progress,
                                         const std::function<void()>& poll);

}  // namespace headlane::models::internal
